"""The three standard streams as they were given to us: closed ones, full disks, readers that left.

A closed one is dangerous: the next file opened would take its number, and be written into as if it were
the terminal. So its number is occupied first, and then nothing is done but saying so.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TextIO

from loopsup.errors import StorageError

STANDARD = (0, 1, 2)
REFUSED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def all_open() -> bool:
    """Standard output is there. Missing standard input and standard error are replaced by /dev/null."""
    if sys.stdout is not None and sys.stderr is not None and sys.stdin is not None:
        return True
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 (it stays open)
    return sys.stdout is not None


def written_whole() -> None:
    """With PYTHONUNBUFFERED (usual in containers) a write the system cut short would lose its rest without an error.

    That happens to a long answer into a pipe when the process is stopped and goes on (Ctrl-Z and `fg`). A buffer
    writes on until everything is out; each line goes out as it ends, as it does without one.
    """
    given = sys.__stdout__
    if given is not None and given is sys.stdout and isinstance(given.buffer, io.FileIO):
        whole = open(given.fileno(), "w", encoding=given.encoding, closefd=False)  # noqa: SIM115 (it stays open)
        whole.reconfigure(line_buffering=True)
        sys.stdout = whole


def refuse() -> int:
    """Nothing can be shown: say it where it can be said."""
    sys.stderr.write("loopsup: standard output is closed, so there is nowhere to answer; use >/dev/null instead\n")
    sys.stderr.flush()
    return StorageError.exit


def refused_output(error: OSError) -> bool:
    """It is standard output that took nothing; then it is discarded, for the interpreter's own flush.

    Everything that writes files names the file in its errors, or turns them into StorageError.
    """
    if error.filename is not None or error.errno not in REFUSED:
        return False
    discard(sys.stdout)
    return True


def discard(stream: TextIO) -> None:
    """What is still to be written to it goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno())
        os.close(sink)
