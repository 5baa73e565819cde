"""The protocol reminder, its ceiling, and hand-overs that fail (cases 37-46, D-18, D-53, D-55)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from loopsup.core.events import AgentLost, DecisionCalled, HandoverAccepted, HandoverRefused, IterationSettled
from loopsup.core.facts import UNKNOWN_ARRIVAL
from loopsup.core.limits import BUSY_RECHECK_MS, MINUTE, PROTOCOL_RETRY_CEILING, RETRY_DELAYS_MS, SECOND
from loopsup.core.model import AbortReason, Delivery, PromptKind, Running
from loopsup.core.step import step
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, call, dies, omits, policy_of, refuses, says

ITERATION, REMINDER = PromptKind.ITERATION, PromptKind.REMINDER
TRIES_AT = [sum(RETRY_DELAYS_MS[:n]) for n in range(len(RETRY_DELAYS_MS) + 1)]  # 0, 1, 3, 7, 15, 31 s


def test_case_37_a_second_omission_pauses() -> None:
    s = Scenario.scripted(omits("2m"), omits("1m"))
    s.start()
    s.run_until("+2m")
    assert s.view() == View("running", n=1, p=1)
    assert s.flight.retry_used
    s.run_until("+3m")
    assert s.view() == View("paused", "protocol_error", 1, p=1, events=("protocol_error",))
    assert [(p.at, p.kind) for p in s.prompts] == [(0, ITERATION), (2 * MINUTE, REMINDER)]
    (attention,) = s.announced
    assert attention.source == "extension"
    assert attention.text
    s.run_until("+1h")
    assert s.sent == 2


def test_reports_on_the_envelope_do_not_touch_the_reminder() -> None:
    s = Scenario.scripted(omits("2m"), omits("5m"))
    s.start()
    envelope = s.live.stamp()
    assert envelope is not None
    s.run_until("+3m")
    before = s.live
    assert before.stamp() != envelope
    s.deliver(IterationSettled(envelope, idle=True, turns=1))
    s.deliver(HandoverRefused(envelope, "late"))
    assert not s.control(call("complete"), envelope).ok
    assert s.live == before


def test_a_reminder_answered_goes_on() -> None:
    s = Scenario.scripted(omits("2m"), says("continue", lasts="1m"))
    s.start()
    s.run_until("+3m")
    assert s.view() == View("waiting", n=1, p=1, wakes=1)
    s.run_until("+13m")
    assert s.iterations == [0, 13 * MINUTE]
    assert s.flight.iteration == 2 if s.live.flight else s.live.iteration_count == 2


@pytest.mark.parametrize("arguments", [{}, {"decision": "continue"}, call("go on"), "complete", None, [], 5])
def test_only_invalid_calls_are_an_omission(arguments: object) -> None:
    s = Scenario.scripted(Turn(MINUTE, (arguments,)), says("continue"))
    s.start()
    s.run_until("+1m")
    assert [v.ok for v in s.verdicts] == [False, True]
    assert s.verdicts[0].message
    assert s.view() == View("waiting", n=1, p=1, wakes=1)


def test_case_38_the_ceiling_forbids_a_sixth_reminder() -> None:
    s = Scenario(deque([omits(), says("continue")] * 5 + [omits()]))
    s.start()
    s.run_until("+2h")
    assert s.view() == View("paused", "protocol_error", 6, p=5, events=("protocol_error",))
    assert (s.sent, s.live.prompts_sent, len(s.script)) == (11, 11, 0)


def test_case_39_the_fifth_reminder_counts() -> None:
    s = Scenario(deque([omits(), says("continue")] * 5))
    s.start()
    s.run_until("+50m")
    assert s.view() == View("waiting", n=6, p=5, wakes=1)


def test_case_41_at_most_55_prompts() -> None:
    s = Scenario(deque([omits(), says("continue")] * PROTOCOL_RETRY_CEILING))
    s.start()
    s.run_until("+12h")
    assert s.view() == View("paused", "iteration_limit", 50, p=5, events=("iteration_limit",))
    assert (s.sent, s.live.prompts_sent) == (55, 55)


def test_case_43_every_iteration_has_its_own_reminder() -> None:
    s = Scenario.scripted(says("continue"), says("continue"), omits(), says("continue"), omits(), says("complete"))
    s.start()
    s.run_until("+1h")
    assert s.view() == View("completed", n=4, p=2, events=("completed",))


def test_the_right_to_a_reminder_returns_after_resume_and_the_count_stays() -> None:
    s = Scenario.scripted(omits(), omits(), omits(), says("continue"))
    s.start()
    s.run_until("+5m")
    assert s.view().reason == "protocol_error"
    assert s.resume().ok
    s.run_until("+6m")
    assert s.view() == View("waiting", n=2, p=2, events=("protocol_error",), wakes=1)


def test_case_46_a_pause_intent_suppresses_the_reminder() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    assert s.pause().ok
    s.run_until("+5m")
    assert s.view() == View("paused", "user", 1)
    assert s.sent == 1


def test_a_stop_intent_suppresses_the_reminder() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    assert s.stop().ok
    s.run_until("+5m")
    assert s.view() == View("stopped", n=1)


def test_case_45_no_reminder_after_the_deadline() -> None:
    s = Scenario.scripted(omits("24h1s"))
    s.start()
    s.run_until("+24h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    s.run_until("+25h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    assert (s.sent, s.live.flight) == (1, None)


@pytest.mark.parametrize("reason", [AbortReason.USER, AbortReason.CLIENT_GONE])
def test_an_interrupted_iteration_pauses_without_event_or_reminder(reason: AbortReason) -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    s.abort(reason)
    assert s.view() == View("paused", "interrupted", 1)
    s.run_until("+1h")
    assert s.sent == 1
    assert s.resume().ok
    assert s.view() == View("running", n=2), "an iteration was in flight: resume goes on at once (D-38)"


@pytest.mark.parametrize("reason", [AbortReason.USER, AbortReason.CLIENT_GONE, AbortReason.DECISION])
def test_an_abort_after_an_accepted_decision_leaves_the_decision(reason: AbortReason) -> None:
    s = Scenario.scripted(says("complete", lasts="5m", decides_after="30s"))
    s.start()
    s.run_until("+1m")
    s.abort(reason)
    assert s.view() == View("completed", n=1, events=("completed",))


def test_the_watchdogs_abort_is_an_omission() -> None:
    s = Scenario.scripted(omits("5m"), says("continue"))
    s.start()
    s.run_until("+1m")
    s.abort(AbortReason.WATCHDOG)
    assert s.view() == View("running", n=1, p=1)
    assert s.prompts[-1].kind is REMINDER


def test_an_error_settlement_gets_the_one_reminder() -> None:
    s = Scenario.scripted(Turn(error="401 unauthorized"), Turn(error="401 unauthorized"))
    s.start()
    s.run_until("+1m")
    assert s.view() == View("paused", "protocol_error", 1, p=1, events=("protocol_error",))
    assert s.sent == 2


def test_case_61_an_agent_that_dies_in_an_iteration() -> None:
    s = Scenario.scripted(dies("pi ended with exit status 3", "2m"))
    s.start()
    s.run_until("+2m")
    assert s.view() == View("paused", "protocol_error", 1, events=("protocol_error",))
    (attention,) = s.announced
    assert attention.source == "extension"
    assert "exit status 3" in attention.text
    assert attention.ended_at == T0.wall + 2 * MINUTE
    assert s.live.llm_calls == 1


@pytest.mark.parametrize(("verb", "state"), [("complete", "completed"), ("fail", "failed")])
def test_an_agent_that_dies_after_its_final_decision_has_decided(verb: str, state: str) -> None:
    s = Scenario.scripted(says(verb, lasts="5m", decides_after="1m"))
    s.start()
    s.run_until("+2m")
    s.lose_agent()
    assert s.view() == View(state, n=1, events=(state,))


def test_an_agent_that_dies_under_a_stop_intent_is_stopped() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    s.stop()
    s.lose_agent()
    assert s.view() == View("stopped", n=1)


def test_an_agent_that_dies_between_iterations_is_started_at_the_next_wake() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+1m")
    before = s.live
    s.lose_agent()
    assert (s.live, s.starts) == (before, 0)
    s.run_until("+10m")
    assert s.starts == 1
    assert s.iterations == [0, 10 * MINUTE]


# ---- hand-overs and starts that fail ------------------------------------------------------------------


def test_a_refused_hand_over_is_rolled_back_and_tried_again() -> None:
    s = Scenario.scripted(refuses("no reader"), refuses("no reader"), says("continue"))
    s.start()
    assert s.view() == View("queued", queued=1)
    assert (s.live.prompts_sent, s.live.iteration_count) == (0, 0)
    s.run_before("+1s")
    assert len(s.prompts) == 1
    s.run_until("+3s")
    assert [p.at for p in s.prompts] == [0, 1 * SECOND, 3 * SECOND]
    assert s.view() == View("waiting", n=1, wakes=1)
    assert s.live.prompts_sent == 1


def test_hand_overs_refused_for_good_pause_with_the_agents_words() -> None:
    s = Scenario.scripted(default=refuses("the tool never said hello"))
    s.start()
    s.run_until("+1h")
    assert [p.at for p in s.prompts] == TRIES_AT
    assert s.view() == View("paused", "protocol_error", events=("protocol_error",))
    (attention,) = s.announced
    assert "the tool never said hello" in attention.text
    assert (attention.source, attention.ended_at) == ("extension", T0.wall + TRIES_AT[-1])
    assert s.live.prompts_sent == 0


def test_a_busy_refusal_spends_no_try() -> None:
    s = Scenario.scripted(*[refuses("busy", busy=True)] * 20, says("complete"))
    s.start()
    s.run_until("+1m")
    assert [p.at for p in s.prompts] == [n * BUSY_RECHECK_MS for n in range(21)]
    assert s.view() == View("completed", n=1, events=("completed",))


def test_busy_answers_between_refusals_spend_no_try() -> None:
    turns = [refuses(), refuses("busy", busy=True)] * 5
    s = Scenario.scripted(*turns, says("complete"))
    s.start()
    s.run_until("+5m")
    assert s.view() == View("completed", n=1, events=("completed",))


def test_a_taken_prompt_gives_the_tries_back() -> None:
    s = Scenario.scripted(*[refuses()] * 5, says("continue"), *[refuses()] * 5, says("complete"))
    s.start()
    s.run_until("+1h")
    assert s.view() == View("completed", n=2, events=("completed",))


def test_a_refused_reminder_is_tried_again_and_counted_once() -> None:
    s = Scenario.scripted(omits(), refuses(), refuses(), says("continue"))
    s.start()
    s.run_until("+3s")
    assert [(p.at, p.kind) for p in s.prompts[1:]] == [(0, REMINDER), (SECOND, REMINDER), (3 * SECOND, REMINDER)]
    assert s.view() == View("waiting", n=1, p=1, wakes=1)
    assert s.live.prompts_sent == 2


def test_reminders_refused_for_good_pause() -> None:
    s = Scenario.scripted(omits(), default=refuses("gone"))
    s.start()
    s.run_until("+1h")
    assert [p.at for p in s.prompts[1:]] == TRIES_AT
    view = s.view()
    assert (view.state, view.reason, view.n, view.events) == ("paused", "protocol_error", 1, ("protocol_error",))
    assert "gone" in s.announced[0].text
    assert s.live.prompts_sent == 1


@pytest.mark.parametrize("command", ["pause", "stop"])
def test_pause_and_stop_while_a_refused_hand_over_waits(command: str) -> None:
    s = Scenario.scripted(refuses())
    s.start()
    reply = s.pause() if command == "pause" else s.stop()
    assert reply.ok
    state = View("paused", "user") if command == "pause" else View("stopped")
    s.run_until("+5m")
    assert (s.view(), len(s.prompts)) == (state, 1)


@pytest.mark.parametrize("command", ["pause", "stop"])
def test_pause_and_stop_while_a_reminder_waits_apply_at_once(command: str) -> None:
    s = Scenario.scripted(omits("1m"), refuses())
    s.start()
    s.run_until("+1m")
    assert (s.pause() if command == "pause" else s.stop()).ok
    s.run_until("+10m")
    view = s.view()
    assert (view.state, view.reason) == (("paused", "user") if command == "pause" else ("stopped", None))
    assert len(s.prompts) == 2


def test_a_start_that_fails_is_tried_again() -> None:
    s = Scenario.scripted()
    s.up = False
    s.start_failures.extend(["not found"] * 3)
    s.start()
    s.run_until("+7s")
    assert s.starts == 4
    assert s.iterations == [7 * SECOND]


def test_a_start_that_fails_for_good_pauses_with_its_words() -> None:
    s = Scenario.scripted()
    s.up = False
    s.start_failures.extend(["pi: command not found"] * 20)
    s.start()
    s.run_until("+1h")
    assert s.starts == len(TRIES_AT)
    assert s.view() == View("paused", "protocol_error", events=("protocol_error",))
    assert "pi: command not found" in s.announced[0].text
    assert s.announced[0].ended_at == T0.wall + TRIES_AT[-1]


def test_a_deadline_during_the_tries_ends_them() -> None:
    s = Scenario.scripted(says("continue"), default=refuses())
    s.start(policy=policy_of(for_="10m5s"))
    s.run_until("+1h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    assert s.prompts[-1].at == 10 * MINUTE + 3 * SECOND


def test_a_stale_hand_over_report_changes_nothing() -> None:
    s = Scenario.scripted(default=says("continue", lasts="5m"))
    s.start()
    stale = s.live.stamp()
    assert stale is not None
    s.run_until("+16m")
    before = s.live
    s.deliver(HandoverAccepted(stale))
    s.deliver(HandoverRefused(stale, "late"))
    assert s.live == before
    assert s.flight.delivery is Delivery.ACCEPTED


def test_a_late_refusal_after_the_acceptance_changes_nothing() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    stamp = s.live.stamp()
    assert stamp is not None
    before = s.live
    s.deliver(HandoverRefused(stamp, "late"))
    assert s.live == before


@pytest.mark.parametrize("verb", ["continue", "complete"])
def test_a_decision_before_the_reminder_went_out_makes_it_needless(verb: str) -> None:
    """The response had only seemed to have ended: no reminder counts, and the decision is applied."""
    s = Scenario.scripted(omits(), omits("5m"))
    s.start()
    s.run_until("+1s")
    sent = replace(s.live, phase=Running(replace(s.flight, delivery=Delivery.SENT)))
    stamp = sent.stamp()
    assert stamp is not None
    assert (sent.prompts_sent, sent.protocol_retry_count) == (2, 1)
    decided = step(sent, DecisionCalled(stamp, call(verb)), s.now).loop
    after = step(decided, HandoverRefused(stamp, "it is needed no more"), s.now).loop
    assert after is not None
    assert (after.prompts_sent, after.protocol_retry_count) == (1, 0)
    assert after.state == ("waiting" if verb == "continue" else "completed")
    assert after.last_decision == decided.last_decision  # type: ignore[union-attr]


def test_a_loss_for_an_unknown_arrival_says_so_once() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    sent = replace(s.live, phase=Running(replace(s.flight, delivery=Delivery.SENT)))
    for reason, told in [
        (f"{UNKNOWN_ARRIVAL} (no sign)", f"was ended during iteration 1: {UNKNOWN_ARRIVAL} (no sign)."),
        ("signal 9", "ended during iteration 1: signal 9; whether the prompt had arrived is unknown."),
    ]:
        lost = step(sent, AgentLost(reason, 0), s.now).loop
        assert lost is not None
        assert lost.last_attention is not None
        assert lost.last_attention.text == f"The agent {told}"
