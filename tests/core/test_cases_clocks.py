"""Two clocks that jump and stop (cases 87-93)."""

from __future__ import annotations

import pytest

from loopsup.core.events import Opened, Ticked
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.model import Moment
from loopsup.core.step import advance
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, call, ms, omits, policy_of, says

EXPIRED = View("paused", "duration_limit", 1, events=("duration_limit",))


def started(*turns: Turn, every: str = "24h") -> Scenario:
    s = Scenario.scripted(*turns)
    s.start(policy=policy_of(every))
    return s


def test_case_87_a_suspended_host_gives_one_iteration() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+1h")
    assert s.view() == View("waiting", n=7, wakes=1)
    s.suspend("8h").run_for("0")
    assert s.iterations[-2:] == [HOUR, 9 * HOUR]
    s.run_until("+9h11m")
    assert s.view() == View("waiting", n=9, wakes=1)
    assert s.iterations[-1] == 9 * HOUR + 10 * MINUTE


def test_case_89_a_wall_clock_set_back_does_not_postpone_the_wake() -> None:
    s = Scenario.scripted(says("continue"), says("continue", lasts="1m"))
    s.start(policy=policy_of(max_iterations=1000))
    s.run_until("+5m")
    s.set_wall(-2 * HOUR)
    s.run_for(ms("5m") - 1)
    assert s.sent == 1
    s.run_for(1)
    assert s.sent == 2
    assert s.iterations[1] == 10 * MINUTE - 2 * HOUR
    assert "Calendar time elapsed: 0s" in s.prompts[1].text
    s.run_until("+23h50m")
    assert not s.announced
    s.run_until("+24h")
    assert s.events == ("duration_limit",)
    assert s.announced[0].ended_at == T0.wall + DAY


def test_elapsed_is_never_negative_in_an_event() -> None:
    s = Scenario.scripted(says("complete", lasts="1m"))
    s.start()
    s.set_wall(-2 * HOUR)
    s.run_for("1m")
    (attention,) = s.announced
    assert attention.calendar_elapsed_ms == 0
    assert attention.deadline_remaining_ms >= 0
    assert attention.observed_at >= attention.ended_at


def test_case_90_a_wall_clock_set_forward_expires_and_stays_latched() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    s.set_wall(30 * HOUR)
    assert s.view() == EXPIRED
    assert (s.announced[0].ended_at, s.announced[0].observed_at) == (T0.wall + DAY, T0.wall + 30 * HOUR + 5 * MINUTE)
    s.set_wall(-30 * HOUR)
    s.run_until("+1h")
    assert not s.resume().ok
    assert s.view() == EXPIRED
    s.run_until("+25h")
    assert s.view() == EXPIRED
    assert s.update(for_="48h").ok
    assert s.resume().ok
    assert s.view() == View("running", n=2, events=("duration_limit",))


def test_a_deadline_value_once_announced_stays_latched_after_other_values() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    s.set_wall(30 * HOUR)
    s.set_wall(-30 * HOUR)
    assert s.update(for_="48h").ok
    assert s.update(for_="24h").ok
    assert not s.resume().ok
    s.run_until("+30h")
    assert s.events == ("duration_limit",)


@pytest.mark.parametrize("lasts", ["0", "3h"], ids=["waiting", "running"])
def test_an_active_loop_brought_back_to_a_latched_deadline_pauses_silently(lasts: str) -> None:
    s = Scenario.scripted(says("continue"), says("continue", lasts=lasts))
    s.start()
    s.run_until("+5m")
    s.set_wall(30 * HOUR)
    s.set_wall(-30 * HOUR)
    assert s.update(for_="48h").ok
    assert s.resume().ok
    s.run_until("+6m")
    assert s.live.state == ("waiting" if lasts == "0" else "running")
    s.update(for_="24h")
    assert s.view() == View("paused", "duration_limit", 2, events=("duration_limit",))
    s.run_until("+30h")
    assert s.events == ("duration_limit",)
    assert s.sent == 2


@pytest.mark.parametrize("back", ["1ms", "2h", "30d"])
@pytest.mark.parametrize("verb", ["complete", "fail", "block"])
def test_case_91_a_clock_set_back_between_an_end_and_its_observation(verb: str, back: str) -> None:
    """The supervisor died after the decision: its end is told when the next one opens, and not before it was."""
    s = Scenario.scripted(says(verb, lasts="9m", decides_after="2m"))
    s.start()
    s.run_until("+3m")
    s.crash()
    s.now = Moment(T0.wall + 2 * MINUTE - (1 if back == "1ms" else ms(back)), s.now.mono)
    s.open()
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + 2 * MINUTE, T0.wall + 2 * MINUTE)
    assert attention.calendar_elapsed_ms == 2 * MINUTE
    assert attention.deadline_remaining_ms == DAY - 2 * MINUTE


def test_case_91_a_clock_set_back_over_the_deadline_while_nobody_was_there() -> None:
    """It is told when the wall clock is there, once, and with its own instant."""
    s = started()
    s.run_until("+2h")
    s.close().run_until("+25h")
    s.set_wall(-2 * HOUR)
    s.open()
    assert (s.view().reason, s.events) == ("session_closed", ())
    s.run_until("+24h").set_wall(-HOUR).run_until("+25h")
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + DAY, T0.wall + DAY)


def test_case_93_a_wait_of_forty_days() -> None:
    s = Scenario.scripted()
    s.start(policy=policy_of("40d", for_="60d", max_delay="60d"))
    s.run_before("+40d")
    assert (s.sent, s.view()) == (1, View("waiting", n=1, wakes=1))
    s.run_until("+40d")
    assert s.sent == 2


def test_a_wake_needs_only_one_of_the_two_clocks() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    waiting = s.live
    for now in (
        s.now.plus(5 * MINUTE),
        Moment(s.now.wall + 5 * MINUTE, s.now.mono),
        Moment(0, s.now.mono + 5 * MINUTE),
    ):
        (step,) = advance(waiting, Ticked(idle=True), now)
        assert step.loop is not None
        assert step.loop.state == "running"
    early = Moment(s.now.wall + 5 * MINUTE - 1, s.now.mono + 5 * MINUTE - 1)
    (step,) = advance(waiting, Ticked(idle=True), early)
    assert (step.loop, step.effects) == (waiting, ())


def test_the_deadline_does_not_follow_the_monotonic_clock() -> None:
    s = started()
    s.run_until("+1h")
    (step,) = advance(s.live, Ticked(idle=False), Moment(s.now.wall, s.now.mono + 100 * DAY))
    assert step.loop is not None
    assert step.loop.state in {"waiting", "queued"}
    assert step.effects == ()


def test_a_retry_waits_out_a_user_turn_without_spinning() -> None:
    s = Scenario.scripted(Turn(refused="no"), says("complete"))
    s.start()
    s.user_turn("10s")
    s.run_until("+10s")
    assert [p.at for p in s.prompts] == [0, 10 * SECOND]
    assert s.view() == View("completed", n=1, events=("completed",))


def test_a_reminder_to_be_tried_again_waits_out_a_user_turn_without_spinning() -> None:
    s = Scenario.scripted(omits("1s"), Turn(refused="no"), says("complete"))
    s.start()
    s.run_until("+1s").user_turn("10s")
    s.run_until("+11s")
    assert [p.at for p in s.prompts] == [0, SECOND, 11 * SECOND]
    assert s.view() == View("completed", n=1, p=1, events=("completed",))


def test_an_auto_wait_beyond_the_deadline_survives_a_restart() -> None:
    s = Scenario.scripted(Turn(calls=(call("continue", "20h"),)))
    s.start(policy=policy_of("auto", for_="10h"))
    s.run_until("+1h")
    s.leave().run_until("+2h")
    s.owned = True
    s.deliver(Opened(reload=True))
    assert s.view() == View("waiting", n=1)
    s.run_until("+10h")
    assert s.view() == EXPIRED
