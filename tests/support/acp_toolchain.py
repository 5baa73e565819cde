"""Bring the pinned ACP agents into the toolchain's cache, once: `python -m tests.support.acp_toolchain`.

Beside node and Pi (`tests.support.toolchain`, which brings node and npm): each agent in a folder of its own that
names its version, made aside and renamed into place under the same lock. Install scripts are not run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support import toolchain

INSTALL_TIMEOUT_S = 600  # 350 MB over a slow mirror


@dataclass(frozen=True)
class Agent:
    """An npm package. `binary`: a pattern for the program inside; a script is run by node."""

    name: str
    package: str
    version: str
    binary: str


OPENCODE = Agent("opencode", "opencode-ai", "1.18.33", "opencode-*/bin/opencode")
GEMINI = Agent("gemini", "@google/gemini-cli", "0.61.0", "@google/gemini-cli/bundle/gemini.js")
AGENTS = (OPENCODE, GEMINI)


def ensure(agent: Agent) -> Path:
    """Install it if it is missing; the directory with the program, to be put on PATH."""
    home = toolchain.cache() / f"{agent.name}-{agent.version}"
    if not home.is_dir():
        toolchain.ensure()
        with (toolchain.cache() / "toolchain.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not home.is_dir():
                _install(agent, home)
    return home / "bin"


def _install(agent: Agent, home: Path) -> None:
    making = toolchain.cache() / f".making-{agent.name}-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    (making / "bin").mkdir(parents=True)
    try:
        (making / "package.json").write_text('{"private": true}\n')
        node = toolchain.node()
        npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        argv = [str(node), str(npm), "install", *options, f"{agent.package}@{agent.version}"]
        done = subprocess.run(
            argv, cwd=making, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        program = min((making / "node_modules").glob(agent.binary), key=lambda path: len(path.parts[-3]))
        final = home / program.relative_to(making)
        runner = f'"{node}" ' if program.suffix == ".js" else ""
        shim = making / "bin" / agent.name  # by exec: the process a test sees is the agent itself
        shim.write_text(f'#!/bin/sh\nexec {runner}"{final}" "$@"\n')
        shim.chmod(0o755)
        making.rename(home)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def main() -> int:
    for agent in AGENTS:
        try:
            print(f"{agent.name} {ensure(agent) / agent.name}")
        except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"{agent.name} could not be installed: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
