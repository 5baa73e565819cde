"""Private files: opened without following symlinks, replaced atomically, appended a whole line at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from loopsup.errors import StorageError

BLOCK = 64 * 1024  # one read; an ordinary journal line fits
MAX_LINE = 32 * 1024 * 1024  # an objective of 1 MiB stands twice in a line and grows sixfold as JSON; twice that
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_error(what: str, path: Path, error: OSError) -> StorageError:
    """One sentence for a failed file operation; `what` like "cannot write"."""
    shown = os.fsdecode(path)
    if error.errno in _FULL:
        return StorageError(f"{what} {shown}: the disk is full ({error.strerror}); free some space")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{what} {shown}: {error.strerror}; check its owner and permissions")
    if error.errno == errno.ELOOP:
        return StorageError(f"{what} {shown}: it is a symbolic link, which is never followed here; remove it")
    return StorageError(f"{what} {shown}: {error.strerror or error}")


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a regular file of ours (0600 if made now), never through a symlink. OSError, StorageError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise StorageError(f"{os.fsdecode(path)} is not a regular file; move it away")
        if found.st_uid != os.geteuid():
            raise StorageError(f"{os.fsdecode(path)} belongs to another user (uid {found.st_uid}); it is not used")
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_private(path: Path, limit: int) -> bytes:
    """The content of a small private file. FileNotFoundError where there is none, else StorageError."""
    try:
        fd = open_private(path, os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error("cannot read", path, error) from error
    if len(content) > limit:
        raise StorageError(f"{os.fsdecode(path)} is larger than {limit} bytes, so it is not one of ours")
    return content


def read_at_once(path: Path, limit: int) -> bytes:
    """Up to `limit` bytes of a file that need not be ours. OSError, also for what one would have to wait for."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe and no file", os.fsdecode(path))
        return file.read(limit) or b""


def sync(fd: int) -> None:
    """Onto the medium: on macOS fsync alone stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if sys.platform == "darwin" and full is not None:
        with contextlib.suppress(OSError):  # not every file system knows it
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def sync_dir(path: Path) -> None:
    """Make new, renamed and removed names in `path` last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` (0600): readers see the old or the new content, also after a power failure."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, content)
            sync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
        sync_dir(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise storage_error("cannot write", path, error) from error


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


class LineFile:
    """Appends whole lines: one write each, and after a failed one the file is as it was before.

    `torn_at`: where a last line without its line end starts (a crash in mid-line), else None.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._dirty = False
        offset, _, ended = next(lines_backwards(fd), (0, b"", True))
        self.torn_at = None if ended else offset

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or make `path`. StorageError."""
        try:
            made = not path.exists()
            fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                if made:
                    sync_dir(path.parent)
                return cls(path, fd)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise storage_error("cannot open", path, error) from error

    def append(self, line: bytes, *, durable: bool) -> None:
        """Write `line` (ends in LF) in one write; `durable`: onto the medium. StorageError: nothing was added."""
        try:
            if self._dirty:
                os.ftruncate(self._fd, self._end)
            self._dirty = True
            if os.write(self._fd, line) != len(line):  # a regular file takes less only when it is full
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                sync(self._fd)
        except OSError as error:
            self._take_back()
            raise storage_error("cannot write", self._path, error) from error
        self._dirty = False
        self._end += len(line)

    def end_torn_line(self) -> None:
        """Give a torn last line its line end, so that the next one stands alone."""
        if self.torn_at is not None:
            self.append(b"\n", durable=False)
            self.torn_at = None

    def _take_back(self) -> None:
        """Remove what a failed write left; where that fails too, the next append tries again first."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._end)
            self._dirty = False

    def close(self) -> None:
        os.close(self._fd)


def from_end(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a private file, newest first, as of `lines_backwards`; none without a file. StorageError."""
    fd = open_to_read(path)
    if fd is None:
        return
    try:
        for offset, line, _ in lines_backwards(fd):
            yield offset, line
    except OSError as error:
        raise storage_error("cannot read", path, error) from error
    finally:
        os.close(fd)


def from_start(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a private file, oldest first, as of `lines_forwards`; none without a file. StorageError."""
    fd = open_to_read(path)
    if fd is None:
        return
    try:
        with os.fdopen(fd, "rb") as file:
            yield from lines_forwards(file)
    except OSError as error:
        raise storage_error("cannot read", path, error) from error


def open_to_read(path: Path) -> int | None:
    """A descriptor of a private file, None where there is none. StorageError."""
    try:
        return open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("cannot read", path, error) from error


def lines_backwards(fd: int, block: int = BLOCK) -> Iterator[tuple[int, bytes | None, bool]]:
    """The lines of a file from its end: (offset, bytes without LF, ended by LF).

    Reads no more than the lines taken need. A line above `MAX_LINE` comes as None.
    """
    position = os.fstat(fd).st_size
    parts: list[bytes] = []  # of the line being put together, last part first
    size = 0
    ended = position > 0 and os.pread(fd, 1, position - 1) == b"\n"
    position -= ended
    open_line = position > 0 or ended
    while position > 0:
        start = max(0, position - block)
        data = os.pread(fd, position - start, start)
        while (cut := data.rfind(b"\n")) >= 0:
            parts.append(data[cut + 1 :])
            size += len(parts[-1])
            yield start + cut + 1, _joined(parts, size), ended
            parts, size, ended = [], 0, True
            data = data[:cut]
        size += len(data)
        parts.append(data)
        if size > MAX_LINE:
            parts.clear()
        position = start
    if open_line:
        yield 0, _joined(parts, size), ended


def lines_forwards(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file from its start: (offset, bytes without LF). A line above `MAX_LINE` comes as None."""
    offset = 0
    while line := file.readline(MAX_LINE + 1):
        size, whole = len(line), line.endswith(b"\n")
        kept = line if whole or size <= MAX_LINE else None
        while not whole and (more := file.readline(MAX_LINE)):
            size, whole, kept = size + len(more), more.endswith(b"\n"), None
        yield offset, None if kept is None else kept.removesuffix(b"\n")
        offset += size


def _joined(parts: list[bytes], size: int) -> bytes | None:
    return None if size > MAX_LINE else b"".join(reversed(parts))
