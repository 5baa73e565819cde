"""The only place that reads a clock. Everywhere else time is a value."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from loopsup.core.model import Moment


class Clock(Protocol):
    """Where `now` comes from; tests bring their own."""

    def now(self) -> Moment: ...


class SystemClock:
    """The machine's wall and monotonic clocks, in milliseconds.

    On Linux the monotonic clock stands still while the machine sleeps: whoever waits re-reads both.
    """

    def now(self) -> Moment:
        from loopsup.core.model import Moment  # not needed by those who only want one of the two below

        return Moment(wall_ms(), mono_ms())


def wall_ms() -> int:
    """The wall clock: milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """The monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000
