"""What Copilot says on stderr (the SDK logs it): into the log, bounded, and its last words for an error message."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

LOGGER = "copilot"  # the SDK's
LOGGED_LINES = 200  # of one process: a warning in a loop must not fill the log
TAIL_LINES = 8  # enough to explain an exit
WIDTH = 500  # characters of one line
_NOBODY = logging.NullHandler()
_STDERR = "[CLI] "  # the SDK's mark on a line of the process


class Diagnostics(logging.Handler):
    """Listens to the SDK's logger between `open` and `shut`; nothing of it reaches the terminal."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._count = 0

    def open(self) -> None:
        logger = logging.getLogger(LOGGER)
        logger.propagate = False
        logger.addHandler(_NOBODY)  # also after `shut`: without any handler Python prints warnings itself
        logger.addHandler(self)

    def shut(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[:WIDTH].rstrip()
        if text.startswith(_STDERR):
            text = text.removeprefix(_STDERR)
            self._tail.append(text)
        self._count += 1
        if self._count < LOGGED_LINES:
            self._log(f"copilot: {text}")
        elif self._count == LOGGED_LINES:
            self._log("copilot: (its further diagnostics are left out)")

    def explain(self, what: str) -> str:
        """`what` happened, with Copilot's last words."""
        words = " / ".join(line.strip() for line in self._tail if line.strip())
        return f"{what}; {words}" if words else what
