"""What Pi says on stderr: into the log, bounded, and its last words for an error message.

What it said while it came up explains a failed start, but not an end hours later: `came_up` forgets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

LOGGED_LINES = 200  # of one process: a warning in a loop must not fill the log
TAIL_LINES = 8  # enough to explain an exit
WIDTH = 500  # characters of one line
ROUTINE = "Warning: No project session found with id "  # how Pi greets a new conversation with an id of ours


class Diagnostics:
    """Fed line by line."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._count = 0

    def line(self, text: str) -> None:
        if not text.startswith(ROUTINE):
            self._tail.append(text[:WIDTH])
        self._count += 1
        if self._count < LOGGED_LINES:
            self._log(f"pi: {text[:WIDTH]}")
        elif self._count == LOGGED_LINES:
            self._log("pi: (its further diagnostics are left out)")

    def came_up(self) -> None:
        self._tail.clear()

    def explain(self, what: str) -> str:
        """`what` happened, with Pi's last words."""
        words = " / ".join(line.strip() for line in self._tail if line.strip())
        if "SyntaxError" in words and "node:" in words:
            words += " (Pi needs node 22.19 or newer)"
        return f"{what}; {words}" if words else what
