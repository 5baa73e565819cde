"""What the user may pass through after `--`: options of `copilot` that also mean something to the SDK.

The headless server ignores the options of a session; they become arguments of `create_session`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopsup.errors import UsageError
from loopsup_copilot.tool import TOOL

_OURS = "loopsup chooses how Copilot runs; leave it out"
_SESSION = "loopsup chooses the conversation; use `start --continue REF` for an existing one"
_POLICY = "permissions are decided by loopsup; use [permissions] of its configuration, or `start --allow-all`"
_DRIVER = "a loop has one driver, and that is loopsup; leave it out"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("-p", "--prompt", "-i", "--interactive", "--acp", "--headless", "--stdio", "--port"), _OURS),
    **dict.fromkeys(("--output-format", "--stream", "-s", "--silent", "--no-auto-update"), _OURS),
    **dict.fromkeys(("--session-id", "--resume", "--continue", "-n", "--name", "--connect"), _SESSION),
    **dict.fromkeys(("--allow-all", "--yolo", "--allow-all-tools", "--allow-all-paths", "--allow-all-urls"), _POLICY),
    **dict.fromkeys(("--allow-tool", "--deny-tool", "--allow-url", "--deny-url"), _POLICY),
    **dict.fromkeys(("--autopilot", "--mode", "--plan", "--max-autopilot-continues"), _DRIVER),
}

# Option -> the SDK's name and how its value is read.
_TAKEN: Mapping[str, str] = {
    "--model": "model",
    "--effort": "reasoning_effort",
    "--reasoning-effort": "reasoning_effort",
    "--agent": "agent",
    "--available-tools": "available_tools",
    "--excluded-tools": "excluded_tools",
    "--add-dir": "additional_directories",
}
_FLAGS: Mapping[str, tuple[str, Any]] = {"--no-custom-instructions": ("skip_custom_instructions", True)}
_LISTS = frozenset({"available_tools", "excluded_tools", "additional_directories"})


@dataclass(frozen=True, slots=True)
class Given:
    """The user's options, as the SDK takes them."""

    options: Mapping[str, Any]

    @property
    def model(self) -> str | None:
        found = self.options.get("model")
        return None if found is None else str(found)


def parse(args: tuple[str, ...], cwd: Path) -> Given:
    """UsageError for what cannot be passed on."""
    out: dict[str, Any] = {}
    for name, value in _pairs(args):
        if name in _FLAGS:
            key, fixed = _FLAGS[name]
            out[key] = fixed
            continue
        key = _TAKEN[name]
        if key in _LISTS:
            out[key] = [*out.get(key, []), *_items(key, value, cwd)]
        else:
            out[key] = value
    if TOOL in out.get("excluded_tools", ()):
        raise UsageError(f"--excluded-tools takes away {TOOL}, without which no iteration can end; narrow it")
    if "available_tools" in out and TOOL not in out["available_tools"]:
        # The user's list of what the agent may do to the world, not of how it reports.
        out["available_tools"] = [*out["available_tools"], TOOL]
    return Given(out)


def _items(key: str, value: str, cwd: Path) -> list[str]:
    if key == "additional_directories":
        return [str(cwd / Path(value).expanduser())]
    return [name.strip() for name in value.split(",") if name.strip()]


def _pairs(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`--name value` and `--name=value`."""
    rest = list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in REFUSED:
            raise UsageError(f"the argument {name} cannot be passed to copilot: {REFUSED[name]}")
        if name in _FLAGS and not equals:
            yield name, ""
            continue
        if name not in _TAKEN:
            known = ", ".join([*_TAKEN, *_FLAGS])
            raise UsageError(f"the argument {name} cannot be passed to copilot headless; these can: {known}")
        if not equals:
            if not rest:
                raise UsageError(f"the argument {name} needs a value")
            value = rest.pop(0)
        if not value:
            raise UsageError(f"the argument {name} needs a value")
        yield name, value
