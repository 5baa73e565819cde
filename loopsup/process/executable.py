"""Which executable a command names, and what to say where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def find(command: str, cwd: Path, env: Mapping[str, str]) -> str | None:
    """The executable a command names: on the PATH of `env`, or a path that may be relative to `cwd`."""
    if "/" in command:
        return shutil.which(str(cwd / command))
    return shutil.which(command, path=env.get("PATH", ""))


def missing(command: str | None, env: Mapping[str, str], install: str) -> str | None:
    """One sentence, with the way to `install` it where there is one; None if it is there, or none is named."""
    if command is None:
        return None
    relative = "/" in command and not Path(command).is_absolute()
    if find(command, Path.cwd() if relative else Path(), env) is not None:  # it may be gone, and often matters not
        return None
    way = f"; install it ({install})" if install else ""
    return f"the command {command} cannot be executed (not on PATH, or no program){way}"
