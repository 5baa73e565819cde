"""Where state lives: `$LOOPSUP_HOME`, else `$XDG_STATE_HOME/loopsup`, else `~/.local/state/loopsup`.

    sessions/<name>/   a session's folder, or a symlink to it     sessions/.lock   held while one is picked or made
    run/<16 hex>.sock  control sockets

Directories are made 0700 and used only if they are ours, nobody else may write in them, and no symlink of
another user leads to them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loopsup.errors import StorageError, UsageError
from loopsup.store.files import storage_error

MAX_SOCKET_PATH = 100  # bytes; the kernel's limit is 108 on Linux and 104 on macOS, NUL included
SHORT_RUN = "/tmp"  # noqa: S108 (where a socket goes whose path would be too long; checked for its owner)


@dataclass(frozen=True, slots=True)
class Home:
    """The state home. The paths are only names; `ensure` makes them."""

    root: Path

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def ensure(self) -> None:
        """Make the directories, or check those that are there. StorageError."""
        private_dir(self.root, parents=True)
        private_dir(self.sessions)
        private_dir(self.run)

    def check(self) -> bool:
        """For readers: False where there is no state yet; StorageError where it cannot be trusted."""
        if not self.sessions.is_dir():
            if self.root.exists() and not self.root.is_dir():
                raise StorageError(f"{_shown(self.root)} is not a directory, so it can keep no state; move it away")
            return False
        check_private(self.root)
        check_private(self.sessions)
        return True

    def new_socket(self) -> Path:
        """A fresh path for a control socket, in a private directory, short enough for the kernel."""
        name = f"{os.urandom(8).hex()}.sock"
        path = self.run / name
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            private_dir(self.run)
            return path
        short = Path(SHORT_RUN) / f"loopsup-{os.geteuid()}"
        private_dir(short)
        return short / name


def find_home(env: Mapping[str, str] = os.environ) -> Home:
    """The state home the environment names; nothing is made or checked. UsageError for a relative one."""
    for variable, below in (("LOOPSUP_HOME", ""), ("XDG_STATE_HOME", "loopsup")):
        value = env.get(variable)
        if value:
            if not Path(value).is_absolute():
                if variable == "LOOPSUP_HOME":
                    raise UsageError(f"LOOPSUP_HOME is the relative path '{value}'; give an absolute one")
                continue  # the XDG rules say: ignore a relative path
            return Home(Path(value, below))
    return usual_home(env)


def usual_home(env: Mapping[str, str] = os.environ) -> Home:
    """The one where no variable names another."""
    return Home(user_home(env) / ".local" / "state" / "loopsup")


def user_home(env: Mapping[str, str] = os.environ) -> Path:
    """The user's home directory; a UsageError where nothing names one."""
    value = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 (the other one raises where there is none)
    if not Path(value).is_absolute():
        raise UsageError("there is no home directory to keep state in; set HOME or LOOPSUP_HOME")
    return Path(value)


def private_dir(path: Path, *, parents: bool = False) -> None:
    """Make `path` (0700), or check that it is private and close it to others. StorageError."""
    try:
        if parents:
            for parent in reversed(path.parents):  # `parents=True` would give them the umask's mode
                parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        check_private(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise storage_error("cannot make the directory", path, error) from error


def check_private(path: Path) -> None:
    """StorageError unless `path` is a directory of ours that others cannot write in or redirect."""
    try:
        _check_links(path)
        found = path.stat()
    except OSError as error:
        raise storage_error("cannot use", path, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{_shown(path)} is not a directory; move it away")
    if found.st_uid != os.geteuid():
        raise StorageError(f"{_shown(path)} belongs to another user (uid {found.st_uid}); set LOOPSUP_HOME elsewhere")
    if found.st_mode & 0o022:
        raise StorageError(f"other users may write in {_shown(path)}; close it with: chmod 700 {_shown(path)}")


def _check_links(path: Path) -> None:
    for part in (path, *path.parents):
        found = part.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
            raise StorageError(
                f"{_shown(part)} is a symbolic link of another user (uid {found.st_uid}); not followed"
            )


def _shown(path: Path) -> str:
    return os.fsdecode(path)
