"""The supervisor's clock, and the one that runs faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.clock import QuickClock, SteppedClock, SystemClock, quickness, supervisors_clock
from loopsup.core.model import Moment


@pytest.mark.parametrize("rate", [None, "", "0", "1", "-3", "1.5", "fast", "@5", "1@5"])
def test_it_is_the_systems_own(rate: str | None) -> None:
    clock = supervisors_clock({} if rate is None else {"LOOPSUP_CLOCK_RATE": rate})
    assert type(clock) is SystemClock
    assert quickness({} if rate is None else {"LOOPSUP_CLOCK_RATE": rate}) == 1


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


class Hands:
    """A clock that is moved by hand."""

    def __init__(self, wall: int, mono: int) -> None:
        self.at = Moment(wall, mono)

    def now(self) -> Moment:
        return self.at


def test_quick_clocks_of_one_instant_show_the_same_time() -> None:
    env = {"LOOPSUP_CLOCK_RATE": "1000@5000000"}
    assert quickness(env) == 1000
    assert isinstance(supervisors_clock(env), QuickClock)
    machine = Hands(wall=5_010_000, mono=77)
    early = QuickClock(1000, 5_000_000, machine)
    seen = early.now()
    assert seen.wall == 5_000_000 + 10_000 * 1000
    machine.at = machine.at.plus(50)
    late = QuickClock(1000, 5_000_000, machine)
    assert late.now() == early.now() == seen.plus(50 * 1000)


def test_a_stepped_clock_moves_the_wall_clock_alone(tmp_path: Path) -> None:
    file = tmp_path / "step"
    clock = supervisors_clock({"LOOPSUP_CLOCK_STEP": str(file)})
    assert type(clock) is SteppedClock
    for text, step in (None, 0), ("nonsense", 0), ("3600000\n", 3_600_000), ("-60000", -60_000):
        if text is not None:
            file.write_text(text)
        before = SystemClock().now()
        now = clock.now()
        after = SystemClock().now()
        assert before.wall + step <= now.wall <= after.wall + step
        assert before.mono <= now.mono <= after.mono
