"""Which `pi` is meant, and what to say where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

COMMAND = "pi"
INSTALL = "npm install -g @earendil-works/pi-coding-agent"


def find(command: str | None, env: Mapping[str, str]) -> str | None:
    """The absolute path, so that the agent's working directory cannot change which one it is."""
    found = shutil.which(os.path.expanduser(command or COMMAND), path=env.get("PATH", os.defpath))  # noqa: PTH111 (the other one raises where there is no home)
    return os.path.abspath(found) if found is not None else None  # noqa: PTH100 (`..` goes, links stay)


def missing(command: str | None, env: Mapping[str, str], agent: str = "pi") -> str | None:
    """One sentence with a way on; None if it is there."""
    if find(command, env) is not None:
        return None
    if command is not None:
        return (
            f"the configured command {command!r} of agent {agent} is not an executable file; "
            f"correct `command` in [agents.{agent}] of the configuration"
        )
    return (
        f"the command `{COMMAND}` is not on PATH; install it with `{INSTALL}` (needs node 22.19 or newer), "
        f"or name it as `command` in [agents.{agent}] of the configuration"
    )
