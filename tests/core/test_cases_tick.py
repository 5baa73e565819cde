"""Loops that `loopsup tick` drives: one driver a loop, nobody waits, nothing fires twice (H-02 to H-07, H-15)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopsup.core import reaper
from loopsup.core.events import Opened, Ticked
from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.misfire import Done, Missed, Skip, Why
from loopsup.core.model import Driver, Moment, State, Waiting
from loopsup.core.step import next_deadline, step
from loopsup.core.ticking import Need, due_at, need
from loopsup.store import ticks
from loopsup.wire.journal import Record, encode_record
from tests.core.test_table import LOOPS, MOMENTS, NOW
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, omits, policy_of, says


def ticked(*turns: Turn, **how: object) -> Scenario:
    s = Scenario.scripted(*turns)
    assert s.start(driver=Driver.TICK, **how).ok  # type: ignore[arg-type]
    return s.go()


def test_nothing_fires_it_but_a_tick() -> None:
    s = ticked()
    s.open()
    s.run_for("3h")
    assert s.prompts == [], "a supervisor that is there for something else"
    assert s.view() == View("waiting")
    s.tick()
    assert s.iterations == [3 * HOUR]
    s.run_for("2h")
    assert s.iterations == [3 * HOUR]


def test_a_tick_fires_only_its_own_loops() -> None:
    s = Scenario.scripted()
    s.start(after="1h")
    s.run_until("+59m")
    s.suspend("1h")
    assert len(s.prompts) == 1, "the resident driver made up for it at once"
    before = s.loop
    s.deliver(Ticked(idle=True, by=Driver.TICK))
    assert s.loop == before


def test_overdue_by_hours_it_fires_once_and_the_rhythm_counts_from_its_end() -> None:
    s = ticked(says("continue", lasts="1m"))
    s.run_for("5h")
    s.tick().tick().tick()
    assert s.iterations == [5 * HOUR]
    assert isinstance(s.live.phase, Waiting)
    assert s.live.phase.due.wall == T0.wall + 5 * HOUR + 11 * MINUTE


def test_the_reminder_belongs_to_the_same_tick() -> None:
    s = ticked(omits(), says("complete"))
    s.tick()
    assert [str(p.kind) for p in s.prompts] == ["iteration", "reminder"]
    assert s.view() == View("completed", n=1, p=1, events=("completed",))


def test_a_wake_that_is_not_due_stays() -> None:
    s = ticked(after="1h")
    before = s.live
    s.run_for("59m").tick()
    assert (s.prompts, s.live.phase) == ([], before.phase)
    s.run_for("1m").tick()
    assert s.iterations == [HOUR]


def test_the_deadline_materialises_at_the_next_tick() -> None:
    s = ticked(policy=policy_of(for_="1h"))
    s.run_for("3h").tick()
    assert s.view() == View("paused", "duration_limit", events=("duration_limit",))
    assert s.prompts == []
    assert s.announced[0].ended_at == T0.wall + HOUR


def test_a_crash_between_iterations_loses_nothing() -> None:
    s = ticked()
    s.tick().crash().run_for("2h")
    s.tick()
    assert s.iterations == [0, 2 * HOUR]


def test_a_crash_in_an_iteration_pauses_and_is_never_made_up_for() -> None:
    s = ticked(omits("10m"))
    s.open().fire()
    assert s.live.state is State.RUNNING
    s.run_for("1m")
    s.crash().run_for("1h").tick()
    assert s.view() == View("paused", "supervisor_lost", 1)
    assert s.sent == 1


def test_a_crash_before_the_hand_over_leaves_the_wake_to_the_next_tick() -> None:
    s = ticked()
    s.start_failures.append("not there")
    s.open().fire()
    assert s.live.state is State.QUEUED
    s.crash().run_for("5m").tick()
    assert s.iterations == [5 * MINUTE]


def test_a_shutdown_before_the_hand_over_does_too_and_a_close_pauses() -> None:
    s = ticked()
    s.start_failures.append("not there")
    s.open().fire()
    assert s.live.state is State.QUEUED
    s.go()
    assert s.live.state is State.WAITING
    s.open().close()
    assert s.view() == View("paused", "session_closed")
    s.tick()
    assert s.prompts == []


def test_a_shutdown_in_an_iteration_pauses() -> None:
    s = ticked(omits("10m"))
    s.open().fire()
    s.run_for("1m").go()
    assert s.view() == View("paused", "session_closed", 1)


def test_pause_update_and_resume_need_nobody_there() -> None:
    s = ticked()
    s.tick().open()
    s.run_for("1m")
    assert s.pause().ok
    s.go().run_for("1h").tick()
    assert s.view() == View("paused", "user", 1)
    s.open()
    assert s.update(every="20m").ok
    assert s.resume().ok
    assert s.live.state is State.WAITING, "also where it is due at once: the next tick fires it"
    s.go().tick()
    assert s.iterations == [0, 61 * MINUTE]


def test_after_a_reboot_the_monotonic_clock_does_not_count() -> None:
    s = ticked()
    s.tick()
    s.now = Moment(s.now.wall + MINUTE, 0)
    s.tick()
    assert s.iterations == [0]
    s.now = Moment(s.now.wall + 9 * MINUTE, 10)
    s.tick()
    assert s.iterations == [0, 10 * MINUTE]


def test_it_pins_no_session_and_arms_no_timer_but_the_deadline() -> None:
    s = ticked()
    assert not reaper.pins(s.loop, s.now)
    assert next_deadline(s.loop).mono is None
    assert next_deadline(s.loop).wall == T0.wall + DAY


def test_what_a_supervisor_of_another_kind_took_up_it_finishes() -> None:
    """A message of the user keeps the agent busy when the tick comes: the iteration follows it."""
    s = ticked()
    s.open().up = True
    s.user_turn("5m")
    s.run_for("1m").fire()
    assert s.live.state is State.QUEUED
    s.run_for("10m")
    assert s.iterations == [5 * MINUTE]


# ---- what a tick looks at ---------------------------------------------------------------------------


def test_what_a_tick_has_to_do() -> None:
    s = ticked(after="1h")
    assert need(s.loop, s.now) is Need.NOTHING
    assert need(s.loop, s.now.plus(HOUR)) is Need.FIRE
    assert need(s.loop, s.now.plus(2 * DAY)) is Need.TIDY
    assert need(None, s.now) is Need.NOTHING
    assert due_at(s.live) == T0.wall + HOUR


@pytest.mark.parametrize("now", MOMENTS.values(), ids=MOMENTS)
def test_the_look_at_the_last_line_misses_nothing(now: Moment) -> None:
    """What only reads the line may say "perhaps" too often, never too seldom."""
    for loop in LOOPS:
        wanted = need(loop, now)
        line = encode_record(Record(1, T0.wall, NOW, Opened(), loop)).rstrip(b"\n")
        seen = ticks._line_due(line, now.wall)
        assert seen or wanted is Need.NOTHING, f"{loop}\n{now}"
        if loop is None or loop.driver is Driver.RESIDENT:
            assert (seen, wanted) == (False, Need.NOTHING)
        elif isinstance(loop.phase, Waiting):
            assert seen == (wanted is not Need.NOTHING)


def test_ticks_agree_with_what_a_tick_does() -> None:
    for loop in LOOPS:
        if need(loop, NOW) is not Need.FIRE:
            continue
        opened = step(loop, Opened(), NOW).loop
        fired = step(opened, Ticked(idle=False, by=Driver.TICK), NOW).loop
        assert fired is not None
        assert fired.state in (State.QUEUED, State.PAUSED), loop


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=200))
def test_whatever_the_line_is_the_look_at_it_does_not_fail(junk: bytes) -> None:
    assert ticks._line_due(junk.replace(b"\n", b""), 0) in (True, False)
    shaped = b'{"v":1,"driver":"tick",' + junk.replace(b"\n", b"") + b"}"
    assert ticks._line_due(shaped, 0) in (True, False)


def test_a_text_that_looks_like_a_driver_is_none() -> None:
    s = Scenario.scripted()
    s.start('"driver":"tick"')
    line = encode_record(Record(1, T0.wall, T0, Opened(), s.loop))
    assert json.loads(line)["loop"]["objective"] == '"driver":"tick"'
    assert not ticks._line_due(line.rstrip(b"\n"), T0.wall + 10 * DAY)


# ---- misfires ---------------------------------------------------------------------------------------


def test_what_a_timer_of_a_minute_needs_is_not_late() -> None:
    s = ticked(policy=replace(policy_of(), misfire=Skip()))
    s.run_for("90s").tick()
    assert (s.iterations, s.live.last_missed) == ([90_000], None)


def test_a_tick_that_did_not_come_is_told_and_the_policy_decides() -> None:
    s = ticked(policy=replace(policy_of(), misfire=Skip()))
    s.run_for("25m").tick()
    assert s.live.last_missed == Missed(T0.wall, 25 * MINUTE, 3, Why.NO_TICK, Done.SKIPPED)
    assert s.iterations == []
    s.run_for("5m").tick()
    assert s.iterations == [30 * MINUTE]


def test_a_resume_leaves_what_is_past_to_the_next_tick() -> None:
    s = ticked()
    s.open().pause()
    s.run_for("1h")
    assert s.resume().ok
    assert (s.live.state, s.prompts) == (State.WAITING, [])
    s.go().tick()
    assert s.iterations == [HOUR]
    assert s.live.last_missed == Missed(T0.wall, HOUR, 7, Why.USER, Done.WOKEN)


def test_a_wake_that_passed_in_a_pause_is_not_put_down_to_ticks_unless_they_stay_away_after_it() -> None:
    s = ticked(after="10m", policy=replace(policy_of(), misfire=Skip()))
    s.open().close()
    s.run_for("25m").open()
    assert s.resume().ok
    s.go().run_for("90s").tick()
    late = 15 * MINUTE + 90_000
    assert s.live.last_missed == Missed(T0.wall + 10 * MINUTE, late, 2, Why.SESSION_CLOSED, Done.SKIPPED)
    s.open().pause()
    s.run_for("25m")
    assert s.resume().ok
    s.go().run_for("91s").tick()
    assert s.live.last_missed is not None
    assert s.live.last_missed.why is Why.NO_TICK


def test_a_deadline_that_passes_over_a_held_wake_says_why_it_was_held() -> None:
    s = ticked(after="10m", policy=policy_of(for_="1h"))
    s.open().pause()
    s.run_for("59m")
    assert s.resume().ok
    s.go().run_for("1m").tick()
    assert s.view() == View("paused", "duration_limit", events=("duration_limit",))
    assert s.live.last_missed == Missed(T0.wall + 10 * MINUTE, 50 * MINUTE, 6, Why.USER, Done.DROPPED)
