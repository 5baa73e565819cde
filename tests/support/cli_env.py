"""A shell environment in which `loopsup` is on PATH and keeps everything below one temporary directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def sandbox(folder: Path) -> Iterator[dict[str, str]]:
    """The environment; afterwards every session in it is closed."""
    hidden = folder / ".sandbox"
    program = hidden / "bin" / "loopsup"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m loopsup "$@"\n')
    program.chmod(0o755)
    env = {
        "PATH": os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "LOOPSUP_HOME": str(hidden / "state"),
        "LOOPSUP_CONFIG": str(hidden / "config.toml"),
        "LANG": "C.UTF-8",
    }
    (hidden / "config.toml").touch()
    try:
        yield env
    finally:
        close_all(folder, env)


def close_all(folder: Path, env: dict[str, str]) -> None:
    """No supervisor outlives its test."""
    for name in session_names(Path(env["LOOPSUP_HOME"])):
        subprocess.run(
            ["loopsup", "close", "--session", name],
            cwd=folder,
            env=env,
            capture_output=True,
            timeout=120,
            check=False,
        )


def session_names(home: Path) -> list[str]:
    """Names of the sessions below `home`."""
    folder = home / "sessions"
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
