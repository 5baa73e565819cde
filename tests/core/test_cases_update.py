"""`update` in every state (cases 62-73)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import Auto, Fixed, Policy
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, call, omits, policy_of, says


def running(*turns: Turn, lasts: str = "5m") -> Scenario:
    """A loop in its first iteration, at +1m of five."""
    s = Scenario.scripted(*turns, default=says("continue", lasts=lasts))
    s.start()
    return s.run_until("+1m")


def waiting() -> Scenario:
    s = Scenario.scripted()
    s.start()
    return s.run_until("+5m")


def queued() -> Scenario:
    s = waiting()
    s.user_turn("10m", at="+9m")
    return s.run_until("+12m")


def test_case_62_update_moves_the_wake_from_the_settlement() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+4m")
    assert s.update(every="30m").ok
    s.run_until("+59m")
    assert s.iterations == [0, 30 * MINUTE]


def test_case_62_an_update_into_the_past_is_due_now_once() -> None:
    s = Scenario.scripted(says("continue"), says("continue", lasts="30s"))
    s.start()
    s.run_until("+4m")
    assert s.update(every="1m").ok
    s.run_until("+5m")
    assert s.iterations == [0, 4 * MINUTE]
    s.run_until("+5m30s")
    assert s.iterations == [0, 4 * MINUTE, 5 * MINUTE + 30_000]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("end", ["crash", "close"])
def test_case_62_an_update_moves_a_wake_whose_iteration_nobody_saw_settle(end: str, before: int) -> None:
    """It had decided when its supervisor died or was closed: the wait counts from there (D-44)."""
    s = Scenario.scripted(*[says("continue")] * before, says("continue", lasts="30m", decides_after="1m"))
    s.start()
    s.run_until(10 * MINUTE * before + MINUTE)
    if end == "crash":
        s.crash().open()
    else:
        s.close().open()
    assert s.update(every="30m").ok
    assert s.resume().ok
    s.run_until("+1h")
    assert s.iterations == [*[0] * before, 10 * MINUTE * before, 10 * MINUTE * before + 31 * MINUTE]


def test_case_63_update_while_queued_keeps_the_one_wake() -> None:
    s = queued()
    assert s.update(every="30m").ok
    assert s.view() == View("queued", n=1, queued=1)
    s.run_until("+48m")
    assert s.iterations == [0, 19 * MINUTE]
    s.run_until("+49m")
    assert s.iterations == [0, 19 * MINUTE, 49 * MINUTE]


def test_update_while_running_applies_at_the_settlement() -> None:
    s = running()
    assert s.update(every="30m").ok
    s.run_until("+35m")
    assert s.iterations == [0, 35 * MINUTE]


def test_case_65_fixed_to_auto_during_an_iteration() -> None:
    s = running(says("continue", lasts="5m"), says("continue", "20m"))
    assert s.update(every="auto").ok
    s.run_until("+5m")
    assert s.verdicts[0].ok
    s.run_until("+15m")
    assert s.iterations == [0, 15 * MINUTE]
    assert "Rhythm: auto (range 1m..24h)" in s.prompts[1].text
    s.run_until("+35m")
    assert s.iterations == [0, 15 * MINUTE, 35 * MINUTE]


def test_case_66_auto_to_fixed_during_an_iteration() -> None:
    s = Scenario.scripted(says("continue", "2h", lasts="5m"))
    s.start(policy=policy_of("auto"))
    s.run_until("+1m")
    assert s.update(every="5m").ok
    s.run_until("+5m")
    assert s.verdicts[0].ok
    s.run_until("+10m")
    assert s.iterations == [0, 10 * MINUTE]
    assert "Rhythm: fixed 5m" in s.prompts[1].text


def test_the_range_of_the_envelope_judges_the_delay() -> None:
    s = Scenario.scripted(says("continue", "2m", lasts="5m"))
    s.start(policy=policy_of("auto"))
    s.run_until("+1m")
    assert s.update(min_delay="1h").ok
    s.run_until("+5m")
    assert s.verdicts[0].ok, "2m was in the range the agent was told"


def test_case_67_update_for_counts_from_the_start() -> None:
    s = Scenario.scripted()
    s.start(policy=policy_of(max_iterations=1000))
    s.run_until("+23h")
    assert s.update(for_="48h").ok
    assert (s.live.started_at, s.live.deadline_at) == (T0.wall, T0.wall + 2 * DAY)
    s.run_until("+47h")
    assert s.events == ()
    s.run_until("+48h")
    assert s.view() == View("paused", "duration_limit", 288, 1000, events=("duration_limit",))


@pytest.mark.parametrize("paused", [False, True])
def test_case_69_a_maximum_already_used_pauses(paused: bool) -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+4h51m")
    assert s.view() == View("waiting", n=30, wakes=1)
    if paused:
        s.pause()
    assert s.update(max_iterations=20).ok
    assert s.view() == View("paused", "iteration_limit", 30, 20, events=("iteration_limit",))
    s.run_until("+10h")
    assert s.sent == 30


@pytest.mark.parametrize("maximum", [20, 30])
def test_case_69_a_maximum_already_used_withdraws_the_queued_wake(maximum: int) -> None:
    s = Scenario.scripted()
    s.start()
    s.user_turn("1h", at="+4h51m").run_until("+5h1m")
    assert s.view() == View("queued", n=30, queued=1)
    assert s.update(max_iterations=maximum).ok
    assert s.view() == View("paused", "iteration_limit", 30, maximum, events=("iteration_limit",))
    s.run_until("+10h")
    assert s.sent == 30


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("continue", View("paused", "iteration_limit", 30, 20, events=("iteration_limit",))),
        ("complete", View("completed", None, 30, 20, events=("completed",))),
    ],
)
def test_case_70_a_maximum_already_used_does_not_abort_the_iteration(verb: str, view: View) -> None:
    s = Scenario.scripted(*[says("continue")] * 29, says(verb, lasts="5m"))
    s.start()
    s.run_until("+4h51m")
    assert s.update(max_iterations=20).ok
    assert s.view() == View("running", None, 30, 20)
    s.run_until("+5h30m")
    assert s.view() == view


BAD_UPDATES: dict[str, dict[str, object]] = {
    "71 min above every": {"min_delay": "20m"},
    "max below every": {"max_delay": "5m"},
    "every below min": {"every": "59s"},
    "min above max": {"every": "auto", "min_delay": "2h", "max_delay": "1h"},
    "zero iterations": {"max_iterations": 0},
    "negative iterations": {"max_iterations": -5},
    "no horizon": {"for_": "0"},
    "no minimum": {"min_delay": "0"},
    "no maximum": {"max_delay": "0"},
    "no interval": {"every": "0"},
    "nothing": {},
}


@pytest.mark.parametrize("fields", BAD_UPDATES.values(), ids=BAD_UPDATES.keys())
@pytest.mark.parametrize("where", [running, waiting, queued])
def test_case_71_a_bad_update_changes_nothing(fields: dict[str, str], where: object) -> None:
    assert callable(where)
    s = where()
    before, records = s.live, len(s.journal)
    reply = s.update(**fields)
    assert (reply.ok, reply.kind) == (False, "usage")
    assert reply.message
    assert (s.live, len(s.journal)) == (before, records)


def test_case_71_the_combination_is_what_counts() -> None:
    s = waiting()
    assert s.update(min_delay="20m", every="30m").ok
    assert s.live.policy == Policy(Fixed(30 * MINUTE), min_delay_ms=20 * MINUTE)


def test_case_71_every_fault_is_listed() -> None:
    s = waiting()
    message = s.update(every="59s", max_iterations=0).message
    assert "59s" in message
    assert "iterations" in message


def test_an_update_keeps_what_it_does_not_name() -> None:
    s = waiting()
    before = s.live
    assert s.update(max_delay="3h").ok
    assert s.live == replace(before, policy=replace(before.policy, max_delay_ms=3 * HOUR))


def test_update_to_auto_while_waiting_keeps_the_wake() -> None:
    s = waiting()
    assert s.update(every="auto").ok
    assert s.live.policy.rhythm == Auto()
    s.run_until("+12m")
    assert s.iterations == [0, 10 * MINUTE]


def test_case_73_extending_the_horizon_after_the_deadline() -> None:
    s = Scenario.scripted()
    s.start(policy=policy_of(max_iterations=1000))
    s.run_until("+30h")
    once = View("paused", "duration_limit", 144, 1000, events=("duration_limit",))
    assert s.view() == once
    assert not s.resume().ok
    assert s.update(for_="48h").ok
    assert s.view() == once, "update alone does not resume (L-35)"
    assert s.resume().ok
    assert s.view() == replace(once, state="running", reason=None, n=145)
    s.run_until("+48h")
    assert s.events == ("duration_limit", "duration_limit")
    assert [a.ended_at - T0.wall for a in s.announced] == [DAY, 2 * DAY]


def test_update_for_below_the_elapsed_time_pauses_at_the_formula() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+2h5m")
    assert s.update(for_="1h").ok
    assert s.view().reason == "duration_limit"
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + HOUR, T0.wall + 2 * HOUR + 5 * MINUTE)
    assert (attention.calendar_elapsed_ms, attention.deadline_remaining_ms) == (HOUR, 0)


def test_update_for_below_the_elapsed_time_lets_the_iteration_end() -> None:
    s = Scenario.scripted(says("complete", lasts="3h"))
    s.start()
    s.run_until("+2h")
    assert s.update(for_="1h").ok
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    s.run_until("+3h")
    assert s.view() == View("completed", n=1, events=("duration_limit", "completed"))


def test_a_decision_accepted_after_the_new_deadline_does_not_hold_it_off() -> None:
    s = Scenario.scripted(says("complete", lasts="3h", decides_after="2h"))
    s.start()
    s.run_until("+2h30m")
    assert s.update(for_="1h").ok
    s.run_until("+3h")
    assert s.view() == View("completed", n=1, events=("duration_limit", "completed"))


def test_a_longer_horizon_arms_a_wake_that_lay_beyond_the_old_one() -> None:
    s = Scenario.scripted(says("continue", "6h", lasts="1h"), says("complete"))
    s.start(policy=policy_of("auto", for_="6h"))
    s.run_until("+2h")
    assert s.view() == View("waiting", n=1)
    assert s.update(for_="24h").ok
    assert s.view() == View("waiting", n=1, wakes=1)
    s.run_until("+7h")
    assert s.iterations == [0, 7 * HOUR]


def test_pausing_during_the_reminder_applies_at_its_settlement() -> None:
    s = Scenario.scripted(omits("1m"), Turn(5 * MINUTE, (call("continue"),)))
    s.start()
    s.run_until("+2m")
    assert s.pause().ok
    s.run_until("+6m")
    assert s.view() == View("paused", "user", 1, p=1)
