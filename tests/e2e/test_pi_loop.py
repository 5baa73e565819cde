"""A loop on the real Pi through the product: how each kind of iteration ends, and what is counted."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import product
from tests.support.steps import HOUR, Steps

pytestmark = [pytest.mark.pi, pytest.mark.slow]


def counts(loop: dict[str, Any]) -> tuple[int, int, int, int]:
    """Iterations, reminders, prompts, LLM calls."""
    return loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"], loop["llmCalls"]


@pytest.mark.parametrize(("verb", "code", "state"), [("complete", 0, "completed"), ("fail", 10, "failed")])
def test_a_loop_ends_with_its_verdict(verb: str, code: int, state: str) -> None:
    with product([Reply("Looking.", [decision(verb, "the CI is done", "gh run: exit 0")])]) as pi:
        accepted = pi.begin(objective="watch the CI")
        assert accepted["loop"]["state"] in ("running", state)
        loop = pi.wait(expect=code)
        assert (loop["state"], loop["pauseReason"]) == (state, None)
        assert counts(loop) == (1, 0, 1, 1)
        last = loop["lastDecision"]
        assert (last["decision"], last["summary"], last["evidence"]) == (verb, "the CI is done", "gh run: exit 0")
        assert pi.balanced()
        assert len(pi.requests) == 1


def test_a_following_start_shows_the_conversation_and_exits_with_the_verdict() -> None:
    with product([Reply("I looked at it.", [decision("complete", "all \x1b[2Jgreen")])]) as pi:
        done = pi.act("start", "--agent", "pi", "--every", "1m", "watch")
        assert "I looked at it." in done.out
        assert "green" in done.out
        assert "\x1b[2J" not in done.out + pi.act("status").out + pi.act("history").out + pi.act("logs").out
        assert "pi does not ask before each tool" in done.err


def test_a_blocked_loop_resumes_in_the_same_conversation() -> None:
    script = [Reply(tools=[decision("block", "needs a key", "gh: 401")]), Reply(tools=[decision("complete")])]
    with product(script) as pi:
        pi.begin()
        blocked = pi.wait(expect=11)
        assert (blocked["state"], blocked["pauseReason"]) == ("paused", "blocked")
        assert blocked["lastAttention"]["status"] == "blocked"
        pi.act("resume")
        assert counts(pi.wait(expect=0)) == (2, 0, 2, 2)
        first, second = user_texts(pi.requests[1])
        assert "Iteration: 1 of 50" in first
        assert "Iteration: 2 of 50" in second
        assert "Last decision/summary/evidence: block / needs a key / gh: 401" in second
        assert pi.balanced()


def test_a_fixed_rhythm_goes_on_in_one_conversation_with_the_users_words_between() -> None:
    """Case 202, A-06: iteration 2's request has iteration 1's messages and the user's chat."""
    script = [
        Reply("ITERATION-ONE", [bash("echo TOOL-OUTPUT")]),
        Reply(tools=[decision("continue", "still red")]),
        Reply("CHAT-ANSWER"),
        Reply(tools=[decision("complete")]),
    ]
    with product(script) as pi:
        pi.begin(every="1h")
        pi.until(state="waiting")
        pi.act("say", "--wait", "USER-CHAT, please")
        pi.act("update", "--every", "1s")
        assert counts(pi.wait(expect=0)) == (2, 0, 2, 3)
        assert pi.balanced()
        last = pi.requests[3]["messages"]
        roles = [message["role"] for message in last]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "user", "assistant", "user"]
        told = json.dumps(last)
        places = [told.index(words) for words in ("ITERATION-ONE", "TOOL-OUTPUT", "still red", "USER-CHAT")]
        assert places == sorted(places)
        assert user_texts(pi.requests[3])[1] == "USER-CHAT, please"
        origins = [(data["origin"], data["text"]) for data in pi.data("user.message")]
        assert [origin for origin, _ in origins] == ["loop", "user", "loop"]
        assert [text for _, text in origins] == user_texts(pi.requests[3])
        assert len(pi.pis()) <= 1


def test_an_auto_rhythm_honours_the_delay_the_agent_names() -> None:
    script = [
        Reply(tools=[decision("continue", nextDelay="2s")]),
        Reply(tools=[decision("continue", nextDelay="1s")]),
        Reply(tools=[decision("complete")]),
    ]
    with product(script) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (3, 0, 3, 3)
        journal = pi.journal()
        waits = [(r["loop"]["phase"]["due"]["wall"], r["event"]) for r in journal if "due" in r["loop"]["phase"]]
        delays = [due - event["wall"] for due, event in waits if event["type"] == "iteration_settled"]
        assert delays == [2000, 1000]
        for body, number in zip(pi.requests, (1, 2, 3), strict=True):
            assert f"Iteration: {number} of 50" in user_texts(body)[-1]
            assert "Rhythm: auto (range 1s..24h)" in user_texts(body)[-1]
        assert pi.balanced()


def test_a_missing_decision_gets_one_reminder_then_the_loop_pauses() -> None:
    with product([Reply("I am done, I think."), Reply("Really, I am.")]) as pi:
        pi.begin()
        loop = pi.wait(expect=14)
        assert (loop["state"], loop["pauseReason"]) == ("paused", "protocol_error")
        assert counts(loop) == (1, 1, 2, 2)
        assert pi.balanced()
        envelope, reminder = user_texts(pi.requests[1])
        assert envelope.startswith("[loop iteration]\n")
        assert reminder.startswith("[loop reminder]\nIteration 1 of 50 ended without a valid loop_control decision.")
        assert [data["origin"] for data in pi.data("user.message")] == ["loop", "protocol"]
        assert loop["lastAttention"]["status"] == "protocol_error"


def test_an_invalid_decision_is_refused_to_the_model_and_counts_its_calls() -> None:
    """Two prompts, four LLM calls: two numbers."""
    wrong = decision("continue", nextDelay="1ms")
    script = [Reply(tools=[wrong]), Reply("Hm."), Reply(tools=[wrong]), Reply("Hm again.")]
    with product(script) as pi:
        pi.begin()
        loop = pi.wait(expect=14)
        assert counts(loop) == (1, 1, 2, 4)
        assert len(pi.requests) == 4
        assert pi.balanced()
        refusals = [m["content"] for m in pi.requests[3]["messages"] if m["role"] == "tool"]
        assert len(refusals) == 2
        assert all("nextDelay" in str(text) for text in refusals)


def test_the_reminder_saves_the_iteration() -> None:
    with product([Reply("Done."), Reply(tools=[decision("complete")])]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 1, 2, 2)
        assert pi.balanced()


def test_a_mixed_batch_costs_one_request() -> None:
    """D-07."""
    with product([Reply(tools=[bash("echo made > made.txt"), decision("complete")])]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 1)
        assert (pi.project / "made.txt").read_text() == "made\n"
        assert pi.data("abort") == [{"reason": "decision"}]
        assert pi.balanced()


def test_a_response_cut_by_its_length_is_observed() -> None:
    cut = Reply("half of an ans", finish="length", output_tokens=4096)
    with product([cut, Reply(tools=[decision("complete")])]) as pi:
        pi.begin("--continuity", "off")
        loop = pi.wait(expect=0)
        assert [data["stopReason"] for data in pi.data("assistant.turn_end")] == ["length", "toolUse"]
        assert counts(loop) == (1, 1, 2, 2)
        assert pi.balanced()


def test_a_rate_limit_is_retried_by_pi_and_each_request_is_counted() -> None:
    with product([Reply(status=429), Reply(status=429), Reply(tools=[decision("complete")])]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        ends = pi.data("assistant.turn_end")
        assert [(end["stopReason"], end.get("error", {}).get("kind")) for end in ends] == [
            ("error", "rate_limit"),
            ("error", "rate_limit"),
            ("toolUse", None),
        ]
        assert pi.balanced()


def test_a_rate_limit_that_stays_is_told() -> None:
    with product([Reply(status=429)] * 6) as pi:
        pi.begin("--continuity", "off")
        loop = pi.wait(expect=14)
        assert counts(loop) == (1, 1, 2, 6)
        assert [error["kind"] for error in pi.data("session.error")] == ["rate_limit", "rate_limit"]
        assert pi.balanced()


@pytest.mark.parametrize("where", ["headers", "stream"])
def test_a_hanging_provider_is_ended_by_the_watchdog_and_is_an_omission(where: str) -> None:
    with product([Reply("half", hang=where), Reply(tools=[decision("complete")])]) as pi:
        pi.configure('[agent]\nsilence_timeout = "6s"\n')
        pi.begin()
        loop = pi.wait(expect=0)
        assert counts(loop) == (1, 1, 2, 2)
        assert pi.data("abort") == [{"reason": "watchdog"}]
        pi.server.wait_for_hangups(1)
        assert pi.balanced()


def test_an_abort_in_mid_turn_pauses_the_loop_and_resume_goes_on() -> None:
    with product([Reply("half", hang="stream"), Reply(tools=[decision("complete")])]) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        pi.act("abort")
        loop = pi.wait(expect=16)
        assert (loop["state"], loop["pauseReason"]) == ("paused", "interrupted")
        assert pi.data("abort") == [{"reason": "user"}]
        assert pi.act("abort", expect=4).err.strip() == "loopsup: no turn is in flight"
        pi.act("resume")
        assert counts(pi.wait(expect=0)) == (2, 0, 2, 2)
        assert pi.balanced()


def test_a_pause_in_mid_turn_waits_for_the_iteration_and_stop_ends_it_for_good() -> None:
    gate = threading.Event()
    with product([Reply(tools=[decision("continue", nextDelay="1s")], gate=gate)]) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        assert pi.act("pause", "--json").obj["loop"]["intent"] == "pause"
        gate.set()
        loop = pi.wait(expect=16)
        assert (loop["pauseReason"], loop["lastDecision"]["decision"]) == ("user", "continue")
        pi.act("stop")
        assert pi.wait(expect=15)["state"] == "stopped"
        pi.act("resume", expect=4)
        assert len(pi.requests) == 1


def test_a_decision_outside_an_iteration_is_refused() -> None:
    """D-08."""
    script = [
        Reply(tools=[decision("continue", nextDelay="1h")]),
        Reply(tools=[decision("complete")]),
        Reply("I see."),
    ]
    with product(script) as pi:
        pi.begin()
        pi.until(state="waiting")
        pi.act("say", "--wait", "are you done?")
        loop = pi.loop()
        assert (loop["state"], loop["iterationCount"], loop["lastDecision"]["decision"]) == ("waiting", 1, "continue")
        assert [data["success"] for data in pi.data("tool.execution_complete")] == [True, False]
        assert pi.balanced()


def test_the_same_session_takes_the_next_loop_in_the_same_conversation() -> None:
    with product([Reply(tools=[decision("complete", "FIRST-DONE")]), Reply(tools=[decision("complete")])]) as pi:
        first = pi.begin(objective="the first")["session"]
        pi.wait(expect=0)
        second = pi.begin(objective="the second")["session"]
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 1)
        assert (second["id"], second["agentSessionId"]) == (first["id"], first["agentSessionId"])
        assert "FIRST-DONE" in json.dumps(pi.requests[1]["messages"])
        one, two = user_texts(pi.requests[1])
        assert "Objective (verbatim): the first" in one
        assert "Objective (verbatim): the second" in two
        assert "Last decision/summary/evidence: none" in two


def test_a_message_during_an_iteration_waits_for_its_end() -> None:
    gate = threading.Event()
    script = [
        Reply("Looking.", [decision("continue", nextDelay="1h")], gate=gate),
        Reply("CHAT-ANSWER"),
    ]
    with product(script) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        saying = pi.spawn("say", "--wait", "hello")
        pi.wait_for(lambda: pi.peek()["session"]["clients"] == 1, "the one who waits for an answer")
        gate.set()
        answered = pi.finish(saying)
        assert (answered.code, "CHAT-ANSWER" in answered.out) == (0, True), answered
        assert [data["origin"] for data in pi.data("user.message")] == ["loop", "user"]
        loop = pi.loop()
        assert (loop["state"], *counts(loop)) == ("waiting", 1, 0, 1, 1)
        assert pi.balanced()


def test_an_abort_of_the_users_own_turn_leaves_the_loop_alone() -> None:
    with product([Reply(tools=[decision("continue", nextDelay="1h")]), Reply("half", hang="stream")]) as pi:
        pi.begin()
        pi.until(state="waiting")
        pi.act("say", "tell me everything")
        pi.server.wait_for_requests(2)
        pi.act("abort")
        pi.server.wait_for_hangups(1)
        pi.wait_for(pi.balanced, "the end of the turn")
        loop = pi.loop()
        assert (loop["state"], loop["pauseReason"], *counts(loop)) == ("waiting", None, 1, 0, 1, 1)


def test_a_wake_while_the_user_has_a_turn_comes_once_after_it() -> None:
    """Case: a tick that finds the agent busy is one queued iteration, never a burst."""
    gate = threading.Event()
    script = [
        Reply(tools=[decision("continue")]),
        Reply("A long answer.", gate=gate),
        Reply(tools=[decision("complete")]),
    ]
    with product(script) as pi:
        pi.begin(every="1h")
        pi.until(state="waiting")
        pi.act("say", "think hard")
        pi.server.wait_for_requests(2)
        pi.act("update", "--every", "1s")
        assert pi.until(state="queued")["loop"]["iterationCount"] == 1
        gate.set()
        assert counts(pi.wait(expect=0)) == (2, 0, 2, 2)
        assert [data["origin"] for data in pi.data("user.message")] == ["loop", "user", "loop"]
        assert pi.balanced()


def test_a_deadline_under_a_running_iteration_lets_it_finish_and_counts_its_end() -> None:
    gate = threading.Event()
    with product([Reply(tools=[decision("complete")], gate=gate)]) as pi:
        steps = Steps(pi)
        pi.begin("--for", "1h", every="1s")
        pi.server.wait_for_requests(1)
        steps.set(2 * HOUR)
        assert pi.wait(expect=12)["pauseReason"] == "duration_limit"
        gate.set()
        assert pi.until(state="completed")["loop"]["llmCalls"] == 1
        assert [data["status"] for data in pi.data("loop.attention")] == ["duration_limit", "completed"]
        assert pi.balanced()


def test_the_iteration_limit_pauses_the_loop() -> None:
    with product([Reply(tools=[decision("continue")]), Reply(tools=[decision("complete")])]) as pi:
        pi.begin("--max-iterations", "1", every="1s")
        assert pi.wait(expect=13)["pauseReason"] == "iteration_limit"
        assert pi.act("resume", expect=4).out == ""
        pi.act("update", "--max-iterations", "2")
        pi.act("resume")
        assert counts(pi.wait(expect=0)) == (2, 0, 2, 2)
