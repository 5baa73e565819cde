"""asyncio on a virtual clock: when nothing is ready, time jumps to the next timer.

A simulated day through real asyncio code takes as long as its callbacks do. Wall and monotonic time can be moved
apart, as a suspended machine or a changed clock does. No I/O is waited for: with nothing ready and no timer
the code under test waits for something that cannot come, and `StuckError` says so; code that never lets time
pass is told apart from that by `MOST_ROUNDS`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from loopsup.core.model import Moment
from tests.support.script import T0

MOST_ROUNDS = 2000  # rounds of the event loop at one instant; the busiest honest instant has a few dozen


class StuckError(AssertionError):
    """The code under test waits for ever, or never waits."""


class VirtualClock:
    """Both clocks. `mono` moves by itself as timers fire; `wall` follows it, and can be moved apart."""

    def __init__(self, start: Moment = T0) -> None:
        self._us = start.mono * 1000
        self._wall_ahead = start.wall - start.mono

    def now(self) -> Moment:
        mono = self._us // 1000
        return Moment(mono + self._wall_ahead, mono)

    def seconds(self) -> float:
        return self._us / 1e6

    def pass_s(self, seconds: float) -> None:
        self._us += max(1, round(seconds * 1e6))

    def move_wall(self, ms: int) -> None:
        """The wall clock is set, or the machine slept (its monotonic clock stood still)."""
        self._wall_ahead += ms


class _Selector(selectors.DefaultSelector):
    """Instead of waiting it lets time pass."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self._rounds += 1
            if self._rounds > MOST_ROUNDS:
                raise StuckError(f"{MOST_ROUNDS} rounds and no time has passed: something spins")
            return ready
        if timeout is None:
            raise StuckError("nothing is ready and no timer is set: something waits for ever")
        self._rounds = 0
        self._clock.pass_s(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that lives in `clock`'s time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_Selector(clock))
        self._virtual = clock
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.seconds()


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, None]]) -> None:
    """Run `main(clock)`. Fails on an exception nobody took and on tasks it leaves behind."""
    clock = VirtualClock()
    problems: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context)))
        await main(clock)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks left behind: {left}"

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(watched())
    assert not problems, problems
