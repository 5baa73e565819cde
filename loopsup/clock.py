"""The only place that reads a clock. Everywhere else time is a value."""

from __future__ import annotations

import time
from typing import Protocol

from loopsup.core.model import Moment


class Clock(Protocol):
    """Where `now` comes from; tests bring their own."""

    def now(self) -> Moment: ...


class SystemClock:
    """The machine's wall and monotonic clocks, in milliseconds.

    On Linux the monotonic clock stands still while the machine sleeps: whoever waits re-reads both.
    """

    def now(self) -> Moment:
        return Moment(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)
