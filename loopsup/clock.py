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
    """A system clock that runs `rate` times as fast: hours of waiting in a test or a demonstration.

    From now on, or, with `since` (wall ms), from that instant on: then every process shows the same time.
    """

    def __init__(self, rate: int, since: int | None = None, machine: Clock | None = None) -> None:
        from loopsup.core.model import Moment

        self._rate = rate
        self._machine = machine or SystemClock()
        real = self._machine.now()
        self._real = real if since is None else real.plus(since - real.wall)
        self._start = self._real if since is None else Moment(since, self._real.mono * rate)

    def now(self) -> Moment:
        real = self._machine.now()
        return self._start.plus((real.mono - self._real.mono) * self._rate)


class SteppedClock:
    """A clock whose wall time is set forward or back meanwhile, by the milliseconds that stand in a file."""

    def __init__(self, clock: Clock, file: str) -> None:
        self._clock = clock
        self._file = file

    def now(self) -> Moment:
        from loopsup.core.model import Moment

        now = self._clock.now()
        return Moment(now.wall + self._step(), now.mono)

    def _step(self) -> int:
        try:
            with open(self._file, encoding="ascii") as file:  # noqa: PTH123 (pathlib takes as long as the rest of `status`)
                return int(file.read())
        except (OSError, ValueError):
            return 0


def supervisors_clock(env: Mapping[str, str]) -> Clock:
    """The clock a supervisor, and whoever stands in for one, lives by; for tests and demonstrations.

    `LOOPSUP_CLOCK_RATE`: a whole number from 2, or `RATE@MS` for one that all processes share since that instant.
    `LOOPSUP_CLOCK_STEP`: the file with the step of the wall clock. Anything else is ignored.
    """
    rate, since = quickness(env), env.get("LOOPSUP_CLOCK_RATE", "").partition("@")[2]
    clock: Clock = SystemClock()
    if rate > 1:
        clock = QuickClock(rate, int(since) if since.isdecimal() else None)
    step = env.get("LOOPSUP_CLOCK_STEP")
    return SteppedClock(clock, step) if step else clock


def quickness(env: Mapping[str, str]) -> int:
    """How many times as fast as the machine's the supervisor's clock runs."""
    rate = env.get("LOOPSUP_CLOCK_RATE", "").partition("@")[0]
    return int(rate) if rate.isdecimal() and int(rate) > 1 else 1


def wall_ms() -> int:
    """The wall clock: milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """The monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def processor_s() -> float:
    """Processor time of this thread, in seconds: what work has cost, however busy the machine is."""
    return time.thread_time()
