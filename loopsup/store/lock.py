"""Ownership of a session: `flock` on its file `lock`, held for the owner's life.

The kernel lets go of it when the owner dies, however it dies, so there is no stale owner and no guess about
process ids: the id written in the file is only for messages. Looking (`probe`) takes a shared lock for an
instant; a taker tells that from an owner and tries again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from loopsup.errors import RefusedError, StorageError
from loopsup.store.files import open_private, storage_error

NAME = "lock"
RETRY_S = 0.01
OWNER_TRIES = 20  # 0.2 s: an owner that is just ending, or two takers who looked at each other
LOOKER_TRIES = 500  # 5 s of nothing but lookers in the way: no owner, yet no way in
CREATION_RETRY_S = 0.02
CREATION_TRIES = 2000  # 40 s: who makes a session waits until its supervisor owns it, on a busy machine up to 30 s
MAX_PID_TEXT = 32

_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a session. `pid` None: it has not written it yet."""

    pid: int | None


class LockHeldError(RefusedError):
    """The session has another owner."""

    def __init__(self, owner: Owner) -> None:
        pid = "another process" if owner.pid is None else f"process {owner.pid}"
        super().__init__(f"the session is owned by {pid}, which does not hand it over; close it there first")
        self.owner = owner


class SessionLock:
    """A held lock. Released by `release`, at exit, or by the kernel."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def acquire(cls, folder: Path) -> Self:
        """Own the session in `folder`. LockHeldError names the owner; StorageError."""
        path = folder / NAME
        try:
            fd = open_private(path, os.O_RDWR | os.O_CREAT)
            try:
                _take(fd)
                if not os.path.samestat(os.fstat(fd), path.stat()):
                    raise StorageError(f"{os.fsdecode(path)} was replaced meanwhile; try again")
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise storage_error("cannot lock", path, error) from error
        return cls(fd)

    @classmethod
    def adopt(cls, folder: Path, fd: int) -> Self:
        """The lock this process already held before it was executed anew. LockHeldError, StorageError."""
        try:
            os.set_inheritable(fd, False)
            if not os.path.samestat(os.fstat(fd), (folder / NAME).stat()):
                raise StorageError(f"descriptor {fd} is not the lock of {os.fsdecode(folder)}")
            _take(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError as error:
            raise storage_error("cannot lock", folder / NAME, error) from error
        return cls(fd)

    def handed_on(self) -> int:
        """Its descriptor, for the program this process is about to become."""
        assert self._fd is not None
        os.set_inheritable(self._fd, True)
        return self._fd

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child may hold a copy of the descriptor
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def probe(folder: Path) -> Owner | None:
    """Who owns the session in `folder`, None if nobody does. Disturbs no taker. StorageError."""
    path = folder / NAME
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("cannot look at", path, error) from error
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _owner(fd)
    except OSError as error:
        raise storage_error("cannot look at", path, error) from error
    finally:
        os.close(fd)


@contextlib.contextmanager
def creation_lock(sessions: Path) -> Iterator[None]:
    """Held while a session is picked or made, so that two `start`s do not make the same one. StorageError."""
    path, patience_s = sessions / ".lock", CREATION_TRIES * CREATION_RETRY_S
    try:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise storage_error("cannot lock", path, error) from error
    try:
        for _ in range(CREATION_TRIES):
            if _try(fd, fcntl.LOCK_EX):
                break
            time.sleep(CREATION_RETRY_S)
        else:
            raise StorageError(
                f"another loopsup command has held {os.fsdecode(path)} for {patience_s:.0f} s; try again later"
            )
        yield
    finally:
        os.close(fd)


def _take(fd: int) -> None:
    owned = 0
    for _ in range(LOOKER_TRIES):
        if _try(fd, fcntl.LOCK_EX):
            return
        if _try(fd, fcntl.LOCK_SH):  # only lookers are in the way
            fcntl.flock(fd, fcntl.LOCK_UN)
        else:
            owned += 1
            if owned >= OWNER_TRIES:
                break
        time.sleep(RETRY_S + os.getpid() % 7 / 1000)  # takers out of step with each other
    raise LockHeldError(_owner(fd))


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def _owner(fd: int) -> Owner:
    text = os.pread(fd, MAX_PID_TEXT, 0)
    return Owner(int(text) if text.strip().isdigit() else None)
