"""supervisor.log: diagnostics for people, private and limited in size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loopsup.clock import SystemClock
from loopsup.wire.times import instant

NAME = "supervisor.log"
MAX_BYTES = 1024 * 1024  # some ten thousand lines: enough for the night in question
MAX_LINE = 4000  # characters of one line


class LogFile:
    """Appends lines; the file that grew too long becomes `supervisor.log.1`, the one before that goes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._clock = SystemClock()

    def write(self, text: str) -> None:
        """One line. A log that cannot be written is no reason to stop."""
        line = f"{instant(self._clock.now().wall)} {text[:MAX_LINE]!s}".replace("\n", "\\n") + "\n"
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, line.encode("utf-8", "backslashreplace"))
            finally:
                os.close(fd)
