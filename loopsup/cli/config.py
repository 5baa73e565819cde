"""`loopsup config`: where the configuration is, and what is in force.

`show` prints the whole configuration as the file could have it, with what the file does not say as comments. What an
option of `start` or an environment variable overrides for one session is that session's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from loopsup.cli.common import JsonOption, out, out_json
from loopsup.errors import EXIT_DONE, UsageError

VERSION = 1
ACTIONS = ("path", "show")

ActionArgument = Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to print.")]


def config(action: ActionArgument, as_json: JsonOption = False) -> int:
    """Show where the configuration is, or what is in force."""
    from loopsup.store.config import config_path

    if action not in ACTIONS:
        raise UsageError(f"'{action}' is nothing that `loopsup config` can do; say one of: {', '.join(ACTIONS)}")
    path = config_path()
    if action == "path":
        if as_json:
            out_json({"version": VERSION, "path": os.fsdecode(path), "exists": path.exists()})
        else:
            out(os.fsdecode(path))
        return EXIT_DONE
    settings = in_force()
    if as_json:
        rows = {name: {"value": value, "default": default} for name, (value, default) in settings.items()}
        out_json({"version": VERSION, "path": os.fsdecode(path), "exists": path.exists(), "settings": rows})
        return EXIT_DONE
    from loopsup.cli import render

    for line in text_lines(os.fsdecode(path), settings, exists=path.exists()):
        render.write(render.safe(line))
    return EXIT_DONE


def in_force() -> dict[str, tuple[Any, bool]]:
    """Each setting by its full name: the value as the file has it or could have it, and whether it is a default.

    None: nothing is set, and there is no default. ConfigError where the file is wrong.
    """
    from loopsup.store.config import AGENT_SETTINGS, SETTINGS, load_config, load_table

    load_config()  # says in one sentence what is wrong
    table, defaults = load_table(), _defaults()
    sections: dict[str, Mapping[str, Any]] = {name: table if not name else table.get(name, {}) for name in SETTINGS}
    known = {name: list(keys) for name, keys in SETTINGS.items()}
    for agent, said in table.get("agents", {}).items():
        sections[f"agents.{agent}"] = said
        known[f"agents.{agent}"] = list(AGENT_SETTINGS)
    found = {}
    for section, keys in known.items():
        for key in keys:
            full = f"{section}.{key}" if section else key
            said = _plain(sections[section].get(key))
            found[full] = (defaults.get(full), True) if said is None else (said, False)
    return found


def _defaults() -> dict[str, Any]:
    """What holds where the file says nothing, as the file would spell it."""
    from loopsup.core import continuity, reaper
    from loopsup.core.durations import show
    from loopsup.core.limits import SECOND
    from loopsup.store.config import Config

    plain, recovery = Config(), continuity.Settings()
    return {
        "agent.silence_timeout": show(plain.silence_timeout),
        "envelope.language": plain.language,
        "permissions.mode": plain.permissions.mode,
        "permissions.allow": list(plain.permissions.allow),
        "permissions.deny": list(plain.permissions.deny),
        "permissions.timeout": show(plain.permissions.timeout),
        "ttsr.enabled": plain.ttsr.enabled,
        "ttsr.context_mode": plain.ttsr.context_mode,
        "ttsr.repeat_mode": plain.ttsr.repeat_mode,
        "ttsr.repeat_gap": plain.ttsr.repeat_gap,
        "ttsr.folders": list(plain.ttsr.folders),
        "continuity.enabled": recovery.enabled,
        "continuity.max_resumes": recovery.max_resumes,
        "continuity.stream_retries": recovery.stream_retries,
        "continuity.stream_delay_ms": recovery.stream_delay_ms,
        "continuity.guidance": "seed",
        "reaper.orphan_grace_s": reaper.ORPHAN_GRACE_MS // SECOND,
        "reaper.idle_ttl": show(reaper.IDLE_TTL_MS),
        "reaper.session_cap": reaper.Reaping().session_cap,
    }


def text_lines(path: str, settings: Mapping[str, tuple[Any, bool]], *, exists: bool) -> Iterator[str]:
    """A configuration file that says all of it."""
    yield f"# {path}" + ("" if exists else " (not there, so all of this are defaults)")
    yield "# what it does not say is commented out, with its default"
    section = ""
    for full, (value, default) in settings.items():
        of, _, key = full.rpartition(".")
        if of != section:
            section = of
            yield ""
            yield f"[{of}]"
        if value is None:
            yield f"# {key} is not set"
        else:
            yield f"{'# ' if default else ''}{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    """A text, a number, a truth value or a list of texts; TOML spells these as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Itself; its kind where JSON has nothing like it: a date or nan, as only [continuity] may have."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):  # the latter also for a whole number of thousands of digits
        return f"a wrong value ({type(value).__name__})"
    return value
