"""What an agent says that is no protocol: into the log, bounded, and its last words for an error message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

LOGGED_LINES = 200  # of one process: a warning in a loop must not fill the log
TAIL_LINES = 8  # enough to explain an exit
WIDTH = 500  # characters of one line


class Diagnostics:
    """Fed line by line. `prefix`: whose words they are."""

    def __init__(self, prefix: str, log: Callable[[str], None]) -> None:
        self._prefix = prefix
        self._log = log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._count = 0

    def line(self, text: str) -> None:
        self._tail.append(text[:WIDTH])
        self._count += 1
        if self._count < LOGGED_LINES:
            self._log(f"{self._prefix}: {text[:WIDTH]}")
        elif self._count == LOGGED_LINES:
            self._log(f"{self._prefix}: (its further diagnostics are left out)")

    def explain(self, what: str) -> str:
        """`what` happened, with the agent's last words."""
        words = " / ".join(line.strip() for line in self._tail if line.strip())
        return f"{what}; {words}" if words else what
