"""Finds adapters by entry point. A broken one is a named row, never a crash of another command.

`LOOPSUP_ADAPTERS=a,b` limits what is loaded: a way out when one adapter breaks, and a seam for tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from loopsup.errors import AgentUnableError
from loopsup.ports import Adapter, Broken

GROUP = "loopsup.adapters"
ALLOW = "LOOPSUP_ADAPTERS"


def names(env: Mapping[str, str] = os.environ) -> list[str]:
    """Names of the installed adapters, sorted; nothing is imported."""
    return sorted(_found(env))


def load(name: str, env: Mapping[str, str] = os.environ) -> Adapter:
    """The adapter `name`. AgentUnableError if there is none or it does not load."""
    found = _found(env)
    if name not in found:
        raise AgentUnableError(f"there is no agent '{name}'{_near(name, found)}")
    loaded = _load(found[name])
    if isinstance(loaded, Broken):
        raise AgentUnableError(f"the adapter '{name}' does not load: {loaded.error}")
    return loaded


def _near(name: str, found: Mapping[str, EntryPoint]) -> str:
    import difflib  # only on an error

    close = difflib.get_close_matches(name, found, n=1)
    meant = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{meant} installed are: {', '.join(sorted(found)) or 'none'}"


def load_all(env: Mapping[str, str] = os.environ) -> list[Adapter | Broken]:
    """Every installed adapter, in the order of names."""
    return [_load(entry) for _, entry in sorted(_found(env).items())]


def _found(env: Mapping[str, str]) -> dict[str, EntryPoint]:
    allowed = env.get(ALLOW)
    wanted = None if allowed is None else {part.strip() for part in allowed.split(",")}
    return {entry.name: entry for entry in entry_points(group=GROUP) if wanted is None or entry.name in wanted}


def _load(entry: EntryPoint) -> Adapter | Broken:
    try:
        adapter: Adapter = entry.load()()
    except Exception as error:  # a third party's code may raise anything; it becomes its own row
        return Broken(entry.name, f"{type(error).__name__}: {error}")
    if getattr(adapter, "name", None) != entry.name:
        return Broken(entry.name, f"it calls itself {getattr(adapter, 'name', None)!r}")
    return adapter
