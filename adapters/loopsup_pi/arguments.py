"""Pi's command line: what the user may pass through, and the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from loopsup.errors import UsageError
from loopsup.ports import Conversation

TOOL = "loop_control"
HEADLESS = ("--mode", "rpc")
INTERFACE = ()  # its own, in a terminal

_OURS = "loopsup chooses how Pi runs; leave it out"
_SESSION = "loopsup chooses the conversation; use `start --continue REF` for an existing one"
_ENDS = "with it Pi prints something and ends; run it yourself"
_PLACE = "set PI_CODING_AGENT_SESSION_DIR in the environment instead, so that loopsup finds the sessions as well"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("--mode", "--print", "-p", "--tui-mode"), _OURS),
    **dict.fromkeys(("--session", "--session-id", "--continue", "-c", "--resume", "-r"), _SESSION),
    **dict.fromkeys(("--fork", "--no-session"), _SESSION),
    **dict.fromkeys(("--export", "--list-models", "--help", "-h", "--version", "-v"), _ENDS),
    "--session-dir": _PLACE,
    "--": "the objective is the only message; a second one cannot be passed to Pi",
}

_ALLOW = ("--tools", "-t")
_EXCLUDE = ("--exclude-tools", "-xt")
_NONE = ("--no-tools", "-nt")


def check(args: tuple[str, ...]) -> None:
    """UsageError for what cannot be passed on."""
    for arg in args:
        name = arg.split("=", 1)[0] if arg.startswith("--") and arg != "--" else arg
        if name in REFUSED:
            raise UsageError(f"the argument {name} cannot be passed to pi: {REFUSED[name]}")
    for option, value in _pairs(args):
        if option in _EXCLUDE and any(fnmatchcase(TOOL, pattern) for pattern in _names(value)):
            raise UsageError(f"{option} {value} takes away {TOOL}, without which no iteration can end; narrow it")
        if option in _ALLOW and f"-{TOOL}" in _names(value):
            raise UsageError(f"{option} {value} takes away {TOOL}, without which no iteration can end; narrow it")


def command_line(
    executable: str,
    extension: str,
    session_id: str,
    resume: Conversation | None,
    args: tuple[str, ...],
    mode: tuple[str, ...] = HEADLESS,
) -> list[str]:
    """The argv. A conversation whose file never came to be (nothing was said in it) is opened by its id."""
    if resume is not None and resume.file is not None and resume.file.exists():
        session = ["--session", str(resume.file)]
    else:
        session = ["--session-id", resume.id if resume is not None else session_id]
    return [executable, *mode, "-e", extension, *session, *_with_tool(args)]


def _with_tool(args: tuple[str, ...]) -> list[str]:
    """An allow-list of tools gets `loop_control` added: it is the user's list of what the agent may do
    to the world, not of how it reports."""
    out = list(args)
    listed = False
    for index, (option, value) in enumerate(_pairs(args)):
        if option not in _ALLOW:
            continue
        listed = True
        names = _names(value)
        plain = any(name[0] not in "+-" for name in names)
        if plain and not any(fnmatchcase(TOOL, name) for name in names):
            out[index + 1] = f"{value},{TOOL}"
    if not listed and any(arg in _NONE for arg in args):
        out += ["--tools", TOOL]
    return out


def _pairs(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every argument with the one after it."""
    return zip(args, (*args[1:], ""), strict=False)


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]
