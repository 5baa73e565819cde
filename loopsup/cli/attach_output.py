"""What the stream writes while somebody types: whole lines go above the input, an unfinished one stays with it.

The stream is written by one thread and taken by the terminal's; a terminal that takes nothing (Ctrl-S) holds
the writer up, so that the supervisor, whose queue is bounded, drops this client rather than anybody's memory.
`Screen` ends its rows at the terminal's width; a line that nobody ends is ended here.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

from loopsup.cli.render import INDENT

TAIL = 2000  # characters of an unfinished line that are shown: the end of what an agent just says
LONGEST = 64 * 1024  # characters of one line; no terminal is a hundredth as wide
MOST = 1024 * 1024  # characters that wait for the terminal; a screen shows a few thousand


class Above(io.TextIOBase):
    """A text stream for `Screen`, for a terminal that has an input line below it."""

    encoding = "utf-8"

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news  # called by whoever writes, in its own thread
        self._cond = threading.Condition(threading.RLock())
        self._lines: list[str] = []
        self._size = 0
        self._parts: list[str] = []  # of the line that is not finished
        self._length = 0  # of all of them
        self._closing = False

    def isatty(self) -> bool:
        return True

    @property
    def tail(self) -> str:
        """The end of the line that is not finished yet."""
        with self._cond:
            found: list[str] = []
            left = TAIL
            for part in reversed(self._parts):
                found.append(part)
                left -= len(part)
                if left <= 0:
                    break
            return "".join(reversed(found))[-TAIL:]

    def rest(self) -> str:
        """Everything that has not been taken, at the end: also a line that was never finished."""
        with self._cond:
            unfinished = self._finished("")
            return self.take() + (unfinished + "\n" if unfinished else "")

    def write(self, text: str) -> int:
        """Waits where too much is waiting already; after `release`, what comes is kept without waiting."""
        with self._cond:
            self._cond.wait_for(lambda: self._size <= MOST or self._closing)
            *whole, rest = text.split("\n")
            for part in whole:
                self._keep([self._finished(part)])
            if self._parts and self._length + len(rest) > LONGEST:
                self._keep([self._finished("")])
                rest = INDENT + rest  # whoever said it, in the first column it could be taken for ours
            if rest:
                self._parts.append(rest)
                self._length += len(rest)
        self._news()
        return len(text)

    def line(self, text: str) -> None:
        """A line of its own, between the stream's; never waits."""
        with self._cond:
            self._keep([text])
        self._news()

    def take(self) -> str:
        """The whole lines that have come since."""
        with self._cond:
            text = "".join(self._lines)
            self._lines.clear()
            self._size = 0
            self._cond.notify_all()
            return text

    def release(self) -> None:
        """Nobody takes anything any more: no writer waits for it."""
        with self._cond:
            self._closing = True
            self._cond.notify_all()

    def _finished(self, end: str) -> str:
        line = "".join((*self._parts, end))
        self._parts.clear()
        self._length = 0
        return line

    def _keep(self, lines: list[str]) -> None:
        for line in lines:
            self._lines.append(line + "\n")
            self._size += len(line) + 1
