"""Wakes that come too late: the policies, what is recorded, and what is not a missed wake (T2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.misfire import LATE_MS, Done, Misfire, Missed, Once, Skip, Why, Within, from_word, made_up, word
from loopsup.core.policy import check
from tests.support.scenario import Scenario
from tests.support.script import T0, View, policy_of, says

SKIPPED, WOKEN = Done.SKIPPED, Done.WOKEN


def looping(misfire: Misfire, every: str = "10m", **policy: object) -> Scenario:
    s = Scenario.scripted()
    s.start(policy=replace(policy_of(every, **policy), misfire=misfire))  # type: ignore[arg-type]
    return s


def missed(s: Scenario) -> list[Missed]:
    """Every one that was recorded, in order."""
    found = [record.loop.last_missed for record in s.journal if record.loop is not None]
    return list(dict.fromkeys(each for each in found if each is not None))


@pytest.mark.parametrize(
    ("misfire", "late", "expected"),
    [
        (Once(), 40 * DAY, True),
        (Skip(), LATE_MS + 1, False),
        (Within(HOUR), HOUR - 1, True),
        (Within(HOUR), HOUR, False),
    ],
)
def test_what_is_made_up_for(misfire: Misfire, late: int, expected: bool) -> None:
    assert made_up(misfire, late) is expected
    assert from_word(word(misfire)) == misfire


@pytest.mark.parametrize("value", ["", "never", None, True, 1.5, [], "1h"])
def test_what_is_no_policy(value: object) -> None:
    with pytest.raises(ValueError, match="once, skip or a number"):
        from_word(value)


@pytest.mark.parametrize(
    ("misfire", "faults"),
    [
        (Once(), 0),
        (Skip(), 0),
        (Within(LATE_MS), 1),
        (Within(0), 1),
        (Within(-HOUR), 1),
        (Within(LATE_MS + 1), 0),
        (Within(366 * DAY), 0),
        (Within(366 * DAY + 1), 1),
    ],
)
def test_which_policies_are_possible(misfire: Misfire, faults: int) -> None:
    assert len(check(replace(policy_of(), misfire=misfire)).faults) == faults


# ---- asleep: the wall clock went on, the monotonic one stood ------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "made", "what"),
    [
        (Once(), True, WOKEN),
        (Skip(), False, SKIPPED),
        (Within(8 * HOUR), True, WOKEN),
        (Within(7 * HOUR), False, SKIPPED),
    ],
)
def test_a_host_that_slept(misfire: Misfire, made: bool, what: Done) -> None:
    """Due at +1h10m, asleep from +1h to +9h, every 10 minutes."""
    s = looping(misfire)
    s.run_until("+1h")
    s.suspend("8h")
    late = 8 * HOUR - 10 * MINUTE
    assert missed(s) == [Missed(T0.wall + 70 * MINUTE, late, 48, Why.ASLEEP, what)]
    s.run_for("0")
    assert s.iterations[7:] == ([9 * HOUR] if made else [])
    s.run_until("+9h9m")
    assert len(s.iterations) == (8 if made else 7), "no burst, whatever the policy"
    s.run_until("+9h10m")
    assert s.iterations[-1] == 9 * HOUR + 10 * MINUTE
    assert len(missed(s)) == 1


def test_the_next_wake_of_a_skipped_one_keeps_the_rhythm() -> None:
    s = looping(Skip(), "1h")
    s.run_until("+30m")
    s.suspend("5h17m")
    assert s.view() == View("waiting", n=1, wakes=1)
    s.run_until("+6h")
    assert s.iterations == [0, 6 * HOUR]
    s.run_until("+7h")
    assert s.iterations == [0, 6 * HOUR, 7 * HOUR]


@pytest.mark.parametrize(("over", "number"), [(LATE_MS, 0), (LATE_MS + 1, 1)])
def test_what_counts_as_late(over: int, number: int) -> None:
    s = looping(Skip())
    s.run_until("+5m")
    s.suspend(5 * MINUTE + over)
    assert len(missed(s)) == number
    assert len(s.iterations) + number == 2


def test_the_deadline_in_the_gap_comes_first_and_the_wake_is_dropped() -> None:
    s = looping(Once(), for_="2h")
    s.run_until("+5m")
    s.suspend("8h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + 2 * HOUR, T0.wall + 8 * HOUR + 5 * MINUTE)
    assert missed(s) == [Missed(T0.wall + 10 * MINUTE, 8 * HOUR - 5 * MINUTE, 48, Why.ASLEEP, Done.DROPPED)]


def test_a_skipped_wake_whose_next_would_lie_behind_the_deadline() -> None:
    s = looping(Skip(), "1h", for_="90m")
    s.run_until("+30m")
    s.suspend("45m")
    assert s.view() == View("waiting", n=1)
    s.run_until("+90m")
    assert s.events == ("duration_limit",)
    assert len(missed(s)) == 1


def test_a_clock_set_back_neither_misses_nor_refires() -> None:
    s = looping(Skip(), for_="48h")
    s.run_until("+5m")
    s.set_wall(-HOUR)
    s.run_for("5m")
    assert len(s.iterations) == 2
    s.run_for("10m")
    assert len(s.iterations) == 3
    assert missed(s) == []


def test_both_clocks_passed_while_the_wall_clock_was_set_back() -> None:
    """The supervisor was stopped for an hour and somebody set the clock back by two."""
    s = looping(Skip())
    s.run_until("+5m")
    due = T0.wall + 10 * MINUTE
    s.now = s.now.plus(HOUR)
    s.set_wall(-2 * HOUR)
    assert missed(s) == [Missed(due, 55 * MINUTE, 6, Why.HELD_UP, SKIPPED)]
    s.run_for("5m")
    assert len(s.iterations) == 2


# ---- nobody there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("misfire", "what"), [(Once(), WOKEN), (Skip(), SKIPPED), (Within(HOUR), WOKEN)])
def test_a_supervisor_that_was_stopped(misfire: Misfire, what: Done) -> None:
    s = looping(misfire)
    s.run_until("+5m")
    s.now = s.now.plus(35 * MINUTE)
    s.set_wall(0)
    assert missed(s) == [Missed(T0.wall + 10 * MINUTE, 30 * MINUTE, 4, Why.HELD_UP, what)]
    s.run_for("0")
    assert len(s.iterations) == (2 if what is WOKEN else 1)


@pytest.mark.parametrize(("misfire", "what"), [(Once(), WOKEN), (Skip(), SKIPPED)])
@pytest.mark.parametrize("how", ["pause", "close", "crash", "fork"])
def test_a_resume_after_the_time_of_the_wake(how: str, misfire: Misfire, what: Done) -> None:
    """X-15, D-38: at most one, and only by the policy."""
    s = looping(misfire)
    s.run_until("+5m")
    getattr(s, how)()
    s.run_until("+35m")
    if not s.owned:
        s.open()
        s.up = True
    assert missed(s) == [], "nothing is decided before the resume"
    reply = s.resume()
    assert reply.ok
    assert ("skipped" in reply.message) == (what is SKIPPED)
    why = {"pause": Why.USER, "close": Why.SESSION_CLOSED, "crash": Why.SUPERVISOR_LOST, "fork": Why.FORK}[how]
    assert missed(s) == [Missed(T0.wall + 10 * MINUTE, 25 * MINUTE, 3, why, what)]
    s.run_until("+39m")
    assert s.iterations == ([0, 35 * MINUTE] if what is WOKEN else [0])
    s.run_until("+40m")
    assert s.iterations[1:] == ([35 * MINUTE] if what is WOKEN else [40 * MINUTE])


def test_a_resume_before_the_time_of_the_wake_misses_nothing() -> None:
    s = looping(Skip())
    s.run_until("+5m")
    s.pause()
    s.run_until("+9m")
    assert s.resume().message == "the loop goes on"
    s.run_until("+10m")
    assert (s.iterations, missed(s)) == ([0, 10 * MINUTE], [])


@pytest.mark.parametrize("verb", ["block"])
def test_a_resume_that_wakes_at_once_makes_up_for_nothing(verb: str) -> None:
    s = Scenario.scripted(says(verb))
    s.start(policy=replace(policy_of(), misfire=Skip()))
    s.run_until("+5h")
    assert s.resume().ok
    assert (s.iterations, missed(s)) == ([0, 5 * HOUR], [])


@pytest.mark.parametrize(("misfire", "what"), [(Once(), WOKEN), (Skip(), SKIPPED)])
def test_a_reload_over_an_overdue_wake(misfire: Misfire, what: Done) -> None:
    """Case 95, L-112."""
    s = looping(misfire)
    s.run_until("+4m")
    s.leave().run_until("+25m")
    s.open(reload=True)
    s.up = True
    s.run_for("0")
    assert missed(s) == [Missed(T0.wall + 10 * MINUTE, 15 * MINUTE, 2, Why.HELD_UP, what)]
    assert s.iterations == ([0, 25 * MINUTE] if what is WOKEN else [0])


# ---- somebody there, but busy ------------------------------------------------------------------------


def test_a_wake_that_waits_for_a_busy_agent_is_queued_and_not_missed() -> None:
    """L-12: the agent is busy from +9m to +2h9m, over twelve wakes."""
    s = looping(Skip())
    s.run_until("+9m")
    s.user_turn("2h")
    s.run_until("+1h")
    assert s.view() == View("queued", n=1, queued=1)
    s.run_until("+2h9m")
    assert s.iterations == [0, 129 * MINUTE]
    assert missed(s) == []


def test_a_late_wake_that_is_made_up_for_waits_for_the_agent_like_any_other() -> None:
    s = looping(Once())
    s.run_until("+9m")
    s.user_turn("1h")
    s.suspend("3h")
    assert s.view() == View("queued", n=1, queued=1)
    assert [each.done for each in missed(s)] == [WOKEN]
    s.run_for("1h")
    assert s.iterations == [0, 4 * HOUR + 9 * MINUTE]


# ---- the agent's own pace ----------------------------------------------------------------------------


def test_with_auto_the_last_delay_named_is_the_rhythm() -> None:
    s = Scenario.scripted(says("continue", "30m"))
    s.start(policy=replace(policy_of("auto"), misfire=Skip()))
    s.run_until("+10m")
    s.suspend("70m")
    assert missed(s) == [Missed(T0.wall + 30 * MINUTE, 50 * MINUTE, 2, Why.ASLEEP, SKIPPED)]
    s.script.append(says("continue", "5h"))
    s.run_until("+90m")
    assert s.iterations == [0, 90 * MINUTE]


def test_with_auto_and_nothing_named_yet_the_shortest_delay_is() -> None:
    s = Scenario.scripted(default=says("continue", "5h"))
    s.start(after="10m", policy=replace(policy_of("auto", min_delay="4m"), misfire=Skip()))
    s.suspend(11 * MINUTE)
    s.run_until("+14m")
    assert s.iterations == [14 * MINUTE]


def test_the_policy_is_changed_by_update_and_by_nothing_else() -> None:
    s = looping(Within(HOUR))
    s.run_until("+5m")
    assert s.update(every="20m").ok
    assert s.live.policy.misfire == Within(HOUR)
    assert s.update(misfire=Skip()).ok
    assert s.live.policy.misfire == Skip()
    assert "too short" in s.update(misfire=Within(SECOND)).message
    s.suspend("30m")
    assert [each.done for each in missed(s)] == [SKIPPED]
