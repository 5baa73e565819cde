"""Which agent a new session gets, and whether it can do what is asked of it.

`--agent`, else `default_agent` of the configuration, else the first of `PREFERRED` that is installed and
can be started here. Whatever is missing is exit 6 with the ways on; nothing has been made by then.
"""

from __future__ import annotations

import os
from pathlib import Path

from loopsup import registry
from loopsup.errors import AgentUnableError
from loopsup.ports import Adapter, Capabilities
from loopsup.store.config import Config, PermissionConfig, config_path
from loopsup.store.envfile import load_env_file

PREFERRED = ("pi", "copilot")
WITHOUT_TOOLS = frozenset({"demo"})  # runs nothing but what the person wrote after --


def choose(named: str | None, config: Config) -> Adapter:
    """The adapter; AgentUnableError where it is not there or its agent cannot be started here."""
    wanted = named or config.default_agent
    if wanted is not None:
        if named is None and wanted not in registry.names():
            raise AgentUnableError(
                f"default_agent of {config_path()} is '{wanted}', which is no installed agent "
                f"(installed: {', '.join(registry.names()) or 'none'}); correct it, or name one with --agent"
            )
        adapter = registry.load(wanted)
        require(adapter, config)
        return adapter
    for name in PREFERRED:
        if name in registry.names():
            adapter = registry.load(name)
            if _missing(adapter, config) is None:
                return adapter
    raise AgentUnableError(
        f"no agent found: neither of {' and '.join(PREFERRED)} can be started here; install one of them, "
        f"or name another with --agent (installed: {', '.join(registry.names()) or 'none'}), "
        f"or set default_agent in {config_path()}{_at_once()}"
    )


def _at_once() -> str:
    works = "demo" in registry.names()
    return "; to try loopsup without any, `--agent demo` and `-- --file PATH` work at once" if works else ""


def require(adapter: Adapter, config: Config) -> None:
    """AgentUnableError if this agent cannot be started on this machine."""
    if (missing := _missing(adapter, config)) is not None:
        raise AgentUnableError(missing)


def check_permissions(name: str, can: Capabilities, wanted: PermissionConfig, *, allow_all: bool) -> list[str]:
    """Warnings of a `start`; AgentUnableError where a denial could not be enforced."""
    denies = wanted.mode == "deny" or bool(wanted.deny)
    if denies and not allow_all and not can.permissions and not can.deny_tools:
        raise AgentUnableError(
            f"the configuration denies tools ([permissions]) and agent '{name}' has no way to be stopped from "
            "running one; take the denial out, choose another agent, or give --allow-all"
        )
    if can.permissions or allow_all or name in WITHOUT_TOOLS:
        return []
    return [f"{name} does not ask before each tool it runs"]


def environment(name: str, config: Config) -> dict[str, str]:
    """What the agent will run in: this shell's environment plus its env_file."""
    env_file = config.agent(name).env_file
    return {**os.environ, **(load_env_file(Path(env_file).expanduser()) if env_file else {})}


def _missing(adapter: Adapter, config: Config) -> str | None:
    return adapter.missing(config.agent(adapter.name).command, environment(adapter.name, config))
