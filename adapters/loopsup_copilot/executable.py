"""Which `copilot` is meant, and what to say where it or the SDK is missing. Nothing heavy is imported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMMAND = "copilot"
VARIABLE = "COPILOT_CLI_PATH"
SDK = "github-copilot-sdk"
INSTALL = "npm install -g @github/copilot"
_LOADER = "npm-loader.js"


def find(command: str | None, env: Mapping[str, str]) -> str | None:
    """The absolute path: as configured, as in COPILOT_CLI_PATH, or from PATH."""
    wanted = command or env.get(VARIABLE) or COMMAND
    found = shutil.which(os.path.expanduser(wanted), path=env.get("PATH", os.defpath))  # noqa: PTH111 (the other one raises where there is no home)
    return None if found is None else _native(os.path.abspath(found))  # noqa: PTH100 (`..` goes, links stay)


def _native(found: str) -> str:
    """npm's `copilot` is a script that runs the real binary as its child; pids and signals are better direct."""
    real = Path(found).resolve()
    if real.name != _LOADER:
        return found
    for modules in (real.parent.parent, real.parent / "node_modules" / "@github"):
        for binary in sorted(modules.glob("copilot-*/copilot")):
            if os.access(binary, os.X_OK):
                return str(binary)
    return found


def missing(command: str | None, env: Mapping[str, str]) -> str | None:
    """One sentence with a way on; None if all is there."""
    return _missing_binary(command, env) or _missing_sdk()


def _missing_binary(command: str | None, env: Mapping[str, str]) -> str | None:
    if find(command, env) is not None:
        return None
    if command is not None:
        return (
            f"the configured command {command!r} of agent copilot is not an executable file; "
            "correct `command` in [agents.copilot] of the configuration"
        )
    if given := env.get(VARIABLE):
        return f"{VARIABLE} names {given!r}, which is not an executable file; correct it or unset it"
    return (
        f"the command `{COMMAND}` is not on PATH; install it with `{INSTALL}`, name it in {VARIABLE}, "
        "or as `command` in [agents.copilot] of the configuration"
    )


def _missing_sdk() -> str | None:
    try:
        version(SDK)
    except PackageNotFoundError:
        return f"the Python package {SDK} is not installed; install it with `pip install 'loopsup[copilot]'`"
    return None
