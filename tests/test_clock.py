"""The supervisor's clock, and the one that runs faster."""

from __future__ import annotations

import pytest

from loopsup.clock import QuickClock, SystemClock, supervisors_clock


@pytest.mark.parametrize("rate", [None, "", "0", "1", "-3", "1.5", "fast"])
def test_it_is_the_systems_own(rate: str | None) -> None:
    clock = supervisors_clock({} if rate is None else {"LOOPSUP_CLOCK_RATE": rate})
    assert type(clock) is SystemClock


def test_a_quick_clock_starts_now_and_runs_ahead() -> None:
    before = SystemClock().now()
    clock = supervisors_clock({"LOOPSUP_CLOCK_RATE": "1000"})
    assert isinstance(clock, QuickClock)
    assert before.wall <= clock.now().wall
    while SystemClock().now().mono < before.mono + 20:
        pass
    after, real = clock.now(), SystemClock().now()
    assert after.mono - before.mono > 10 * (real.mono - before.mono)
    assert after.wall - before.wall > 10 * (real.wall - before.wall)
