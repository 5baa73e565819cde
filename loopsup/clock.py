"""The only place that reads a clock. Everywhere else time is a value."""

from __future__ import annotations

import time
from collections.abc import Mapping
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


class QuickClock:
    """A system clock that runs `rate` times as fast from now on: hours of waiting in a test or a demonstration."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._start = SystemClock().now()

    def now(self) -> Moment:
        real = SystemClock().now()
        return self._start.plus((real.mono - self._start.mono) * self._rate)


def supervisors_clock(env: Mapping[str, str]) -> Clock:
    """The clock a supervisor lives by. `LOOPSUP_CLOCK_RATE`: a whole number from 2, anything else is ignored."""
    rate = env.get("LOOPSUP_CLOCK_RATE", "")
    return QuickClock(int(rate)) if rate.isdecimal() and int(rate) > 1 else SystemClock()


def wall_ms() -> int:
    """The wall clock: milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """The monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000
