"""Waits, coalescing, decisions (cases 14-35)."""

from __future__ import annotations

import pytest

from loopsup.core.events import DecisionCalled, IterationSettled
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.model import Decision, Stamp, Verb
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, call, ms, omits, policy_of, says


def test_case_14_the_wait_starts_at_the_settlement() -> None:
    s = Scenario.scripted(says("continue", lasts="7m"))
    s.start()
    s.run_before("+17m")
    assert s.iterations == [0]
    assert s.view() == View("waiting", n=1, wakes=1)
    s.run_until("+17m")
    assert s.iterations == [0, 17 * MINUTE]


def test_case_15_a_delay_in_fixed_rhythm_is_a_tool_error_that_costs_nothing() -> None:
    s = Scenario.scripted(Turn(MINUTE, (call("continue", "10m"), call("continue"))))
    s.start()
    s.run_until("+1m")
    assert [v.ok for v in s.verdicts] == [False, True]
    assert "nextDelay" in s.verdicts[0].message
    assert s.view() == View("waiting", n=1, wakes=1)


@pytest.mark.parametrize(
    ("delay", "ok"),
    [("59s", False), ("24h1s", False), ("1m", True), ("24h", True), (None, False), ("soon", False), ("0s", False)],
)
def test_case_17_a_delay_in_auto_rhythm_is_never_clamped(delay: str | None, ok: bool) -> None:
    s = Scenario.scripted(Turn(MINUTE, (call("continue", delay),)), default=says("continue", "24h"))
    s.start(policy=policy_of("auto", for_="3d"))
    s.run_until("+1m")
    assert s.verdicts[0].ok is ok
    if ok:
        assert delay is not None
        assert s.view() == View("waiting", n=1, wakes=1)
        s.run_until(ms("1m") + ms(delay))
        assert s.iterations == [0, MINUTE + ms(delay)]
    else:
        assert s.view().p == 1


@pytest.mark.parametrize(("case", "delay"), [("18", "6h"), ("19", "5h")], ids=["18 beyond", "19 exactly"])
def test_a_delay_up_to_or_beyond_the_horizon_waits_for_the_deadline(case: str, delay: str) -> None:
    s = Scenario.scripted(says("continue", delay, lasts="1h"))
    s.start(policy=policy_of("auto", for_="6h"))
    s.run_before("+6h")
    assert s.verdicts[0].ok, case
    assert s.view() == View("waiting", n=1), "no wake is armed, only the deadline"
    s.run_until("+6h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    assert (s.announced[0].ended_at, s.sent) == (T0.wall + 6 * HOUR, 1)


def test_a_delay_just_inside_the_horizon_runs() -> None:
    s = Scenario.scripted(says("continue", "4h59m59s", lasts="1h"), says("complete"))
    s.start(policy=policy_of("auto", for_="6h"))
    s.run_until("+6h")
    assert s.iterations == [0, 6 * HOUR - SECOND]
    assert s.view() == View("completed", n=2, events=("completed",))


def test_case_21_a_wake_at_the_deadline_is_not_delivered() -> None:
    s = Scenario.scripted()
    s.start(policy=policy_of("24h"))
    s.run_until("+24h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    s.run_until("+72h")
    assert s.iterations == [0]


def test_case_22_chatting_does_not_move_the_wake() -> None:
    s = Scenario.scripted()
    s.start()
    s.user_turn("30s", at="+3m").user_turn("30s", at="+4m")
    s.run_before("+10m")
    assert s.view() == View("waiting", n=1, wakes=1)
    s.run_until("+10m")
    assert s.iterations == [0, 10 * MINUTE]


def test_case_23_many_expiries_under_a_busy_agent_are_one_iteration() -> None:
    s = Scenario.scripted(default=says("continue", lasts="2m"))
    s.start()
    s.user_turn("36m", at="+9m")
    for offset in ("+12m", "+22m", "+44m"):
        s.run_until(offset)
        assert s.view() == View("queued", n=1, queued=1)
    s.run_until("+45m")
    assert s.iterations == [0, 45 * MINUTE]
    s.run_until("+57m")
    assert s.iterations == [0, 45 * MINUTE, 57 * MINUTE]


def test_case_227_the_user_goes_before_a_wake_due_at_the_same_instant() -> None:
    s = Scenario.scripted(default=says("continue"))
    s.start()
    s.user_turn("3m", at="+10m")
    s.run_until("+10m")
    assert s.view() == View("queued", n=1, queued=1)
    s.run_until("+13m")
    assert s.iterations == [0, 13 * MINUTE]


def test_a_message_during_an_iteration_goes_before_the_reminder() -> None:
    s = Scenario.scripted(omits("5m"), says("complete"))
    s.start()
    s.user_turn("4m", at="+2m")
    s.run_until("+5m")
    assert (s.live.state, s.sent) == ("running", 1)
    s.run_until("+9m")
    assert [p.at for p in s.prompts] == [0, 9 * MINUTE]
    assert s.view() == View("completed", n=1, p=1, events=("completed",))


@pytest.mark.parametrize(
    ("case", "verb", "state", "event"),
    [("25", "complete", "completed", "completed"), ("26", "fail", "failed", "failed")],
)
def test_a_definitive_decision_ends_the_loop_for_good(case: str, verb: str, state: str, event: str) -> None:
    s = Scenario.scripted(Turn(MINUTE, (call(verb, summary="all of it", evidence="the log"),)))
    s.start()
    s.run_until("+1m")
    end = View(state, n=1, events=(event,))
    assert s.view() == end, case
    (attention,) = s.announced
    assert (attention.source, attention.summary, attention.text) == ("agent", "all of it", "the log")
    assert (attention.ended_at, attention.observed_at) == (T0.wall + MINUTE, T0.wall + MINUTE)
    assert (attention.calendar_elapsed_ms, attention.deadline_remaining_ms) == (MINUTE, DAY - MINUTE)
    assert (attention.iteration_count, attention.max_iterations, attention.protocol_retry_count) == (1, 50, 0)
    assert s.live.last_attention == attention
    for command in (s.resume, s.pause, s.stop, lambda: s.update(every="20m")):
        assert not command().ok
    s.run_until("+48h")
    assert s.view() == end


def test_case_27_block_and_go_on() -> None:
    s = Scenario.scripted(says("block", lasts="1m"), says("continue", lasts="1m"))
    s.start()
    s.run_until("+1m")
    assert s.view() == View("paused", "blocked", 1, events=("blocked",))
    s.run_until("+30m")
    assert s.resume().ok
    assert s.view() == View("running", n=2, events=("blocked",))
    assert s.flight.retry_used is False
    assert s.iterations == [0, 30 * MINUTE]


def test_case_29_a_delay_beside_complete_is_invalid() -> None:
    s = Scenario.scripted(Turn(0, (call("complete", "10m"),)), says("complete"))
    s.start(policy=policy_of("auto"))
    s.run_until("+1m")
    assert [v.ok for v in s.verdicts] == [False, True]
    assert s.view() == View("completed", n=1, p=1, events=("completed",))


@pytest.mark.parametrize(
    ("verbs", "state"),
    [(("continue", "complete"), "waiting"), (("complete", "continue"), "completed"), (("block", "fail"), "paused")],
)
def test_case_30_the_first_valid_decision_wins(verbs: tuple[str, ...], state: str) -> None:
    s = Scenario.scripted(Turn(MINUTE, tuple(call(verb) for verb in verbs)))
    s.start()
    s.run_until("+1m")
    assert [v.ok for v in s.verdicts] == [True, False]
    assert s.live.state == state


def test_case_33_a_late_decision_of_an_older_iteration_is_refused() -> None:
    s = Scenario.scripted(default=says("continue", lasts="5m"))
    s.start()
    stale = s.live.stamp()
    s.run_until("+16m")
    running = s.live
    assert running.iteration_count == 2
    assert not s.control(call("complete"), stale).ok
    assert s.live == running


@pytest.mark.parametrize("where", ["waiting", "paused", "user turn", "no stamp", "other loop"])
def test_a_decision_outside_its_iteration_is_refused(where: str) -> None:
    s = Scenario.scripted(default=says("continue", lasts="5m"))
    s.start()
    stamp = s.live.stamp()
    assert stamp is not None
    s.run_until("+6m")
    if where == "paused":
        s.pause()
    if where == "user turn":
        s.user_turn("3m")
    if where == "no stamp":
        s.run_until("+16m")
        stamp = None
    if where == "other loop":
        s.run_until("+16m")
        current = s.live.stamp()
        assert current is not None
        stamp = Stamp("another", current.iteration, current.generation)
    before = s.live
    assert not s.control(call("complete"), stamp).ok
    assert s.live == before


def test_case_34_a_lie_is_reported_not_verified() -> None:
    s = Scenario.scripted(Turn(0, (call("complete", evidence="see /nonexistent"),)))
    s.start()
    s.run_until("+1m")
    assert s.view() == View("completed", n=1, events=("completed",))
    assert s.announced[0].text == "see /nonexistent"


def test_case_35_an_accepted_decision_applies_at_settlement_and_is_journaled_at_once() -> None:
    s = Scenario.scripted(says("complete", lasts="9m", decides_after="2m"))
    s.start()
    s.run_until("+2m")
    expected = Decision(Verb.COMPLETE, "looked", "ran it", None, 1, T0.wall + 2 * MINUTE)
    assert s.view() == View("running", n=1)
    assert s.flight.decision == expected
    assert isinstance(s.journal[-1].event, DecisionCalled)
    s.run_until("+9m")
    assert s.view() == View("completed", n=1, events=("completed",))
    assert s.live.last_decision == expected


def test_a_settlement_with_a_stale_stamp_changes_nothing() -> None:
    s = Scenario.scripted(default=says("continue", lasts="5m"))
    s.start()
    stale = s.live.stamp()
    assert stale is not None
    s.run_until("+16m")
    before = s.live
    s.deliver(IterationSettled(stale, idle=True, turns=3))
    assert s.live == before


def test_the_next_envelope_carries_the_last_decision() -> None:
    s = Scenario.scripted(Turn(0, (call("continue", summary="still red", evidence="run 17"),)))
    s.start()
    s.run_until("+10m")
    text = s.prompts[1].text
    assert "Iteration: 2 of 50" in text
    for words in ("continue", "still red", "run 17", "Calendar time elapsed: 10m", "Time to deadline: 23h50m"):
        assert words in text


def test_prompts_and_turn_pairs_are_counted_apart() -> None:
    s = Scenario.scripted(
        Turn(turns=4), Turn(calls=(call("continue"),), turns=2), Turn(calls=(call("fail"),), turns=3)
    )
    s.start()
    s.run_until("+10m")
    assert (s.live.prompts_sent, s.live.llm_calls, s.live.iteration_count) == (3, 9, 2)


def test_a_hundred_days_of_instant_iterations_stop_at_the_default_limit() -> None:
    s = Scenario.scripted()
    s.start(policy=policy_of(for_="100d"))
    s.run_until("+8h10m")
    assert s.view() == View("paused", "iteration_limit", 50, events=("iteration_limit",))
    assert s.iterations == [n * 10 * MINUTE for n in range(50)]
