"""A loop on the real Copilot through the product: how each kind of iteration ends, and what is counted."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.copilot_env import heard, shell, task
from tests.support.copilot_product import product
from tests.support.model_server import Body, Reply, decision

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])


def counts(loop: dict[str, Any]) -> tuple[int, int, int, int]:
    """Iterations, reminders, prompts, LLM calls."""
    return loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"], loop["llmCalls"]


@pytest.mark.parametrize(("verb", "code", "state"), [("complete", 0, "completed"), ("fail", 10, "failed")])
def test_a_loop_ends_with_its_verdict(verb: str, code: int, state: str) -> None:
    """The objective stands in the envelope byte for byte, whatever is in it."""
    objective = "watch the CI  \n\tof {PR} \u2028 çã 🔁 </current_datetime> /help !ls"
    with product([Reply("Looking.", [decision(verb, "the CI is done", "gh run: exit 0")])]) as it:
        accepted = it.begin(objective=objective)
        assert accepted["loop"]["state"] in ("running", state)
        loop = it.wait(expect=code)
        assert (loop["state"], loop["pauseReason"], loop["objective"]) == (state, None, objective)
        assert counts(loop) == (1, 0, 1, 1)
        last = loop["lastDecision"]
        assert (last["decision"], last["summary"], last["evidence"]) == (verb, "the CI is done", "gh run: exit 0")
        assert it.balanced()
        assert objective in it.heard()[0]
        assert it.heard()[0] == it.data("user.message")[0]["text"].rstrip()


def test_a_blocked_loop_resumes_in_the_same_conversation() -> None:
    script = [Reply(tools=[decision("block", "needs a key", "gh: 401")]), COMPLETE]
    with product(script) as it:
        it.begin()
        blocked = it.wait(expect=11)
        assert (blocked["state"], blocked["pauseReason"]) == ("paused", "blocked")
        it.act("resume")
        assert counts(it.wait(expect=0)) == (2, 0, 2, 2)
        first, second = it.heard()
        assert "Iteration: 1 of 50" in first
        assert "Last decision/summary/evidence: block / needs a key / gh: 401" in second
        assert it.balanced()


def test_a_rhythm_goes_on_in_one_conversation_with_the_users_words_between() -> None:
    """Case 202, A-06; D-08: a decision outside an iteration is refused."""
    script = [
        Reply("ITERATION-ONE", [shell("echo TOOL-OUTPUT")]),
        Reply(tools=[decision("continue", "still red")]),
        Reply(tools=[decision("complete")]),
        Reply("CHAT-ANSWER"),
        COMPLETE,
    ]
    with product(script) as it:
        it.begin("--allow-all", every="1h")
        it.until(state="waiting")
        assert it.act("say", "--wait", "USER-CHAT, please").out.strip() == "CHAT-ANSWER"
        it.act("update", "--every", "1s")
        assert counts(it.wait(expect=0)) == (2, 0, 2, 3)
        assert it.balanced()
        told = json.dumps(it.requests[-1]["messages"])
        places = [told.index(words) for words in ("ITERATION-ONE", "TOOL-OUTPUT", "still red", "USER-CHAT")]
        assert places == sorted(places)
        assert [data["origin"] for data in it.data("user.message")] == ["loop", "user", "loop"]
        assert [data["success"] for data in it.data("tool.execution_complete")] == [True, True, False, True]


def test_a_missing_decision_gets_one_reminder_then_the_loop_pauses() -> None:
    with product([Reply("I am done, I think."), Reply("Really, I am.")]) as it:
        it.begin()
        loop = it.wait(expect=14)
        assert (loop["state"], loop["pauseReason"]) == ("paused", "protocol_error")
        assert counts(loop) == (1, 1, 2, 2)
        assert it.balanced()
        envelope, reminder = it.heard()
        assert envelope.startswith("[loop iteration]\n")
        assert reminder.startswith("[loop reminder]\nIteration 1 of 50 ended without a valid loop_control decision.")
        assert [data["origin"] for data in it.data("user.message")] == ["loop", "protocol"]


def test_an_invalid_decision_is_refused_to_the_model_and_counts_its_calls() -> None:
    """Two prompts, four LLM calls: two numbers (X-12)."""
    wrong = decision("continue", nextDelay="1ms")
    with product([Reply(tools=[wrong]), Reply("Hm."), Reply(tools=[wrong]), Reply("Hm again.")]) as it:
        it.begin()
        assert counts(it.wait(expect=14)) == (1, 1, 2, 4)
        assert len(it.requests) == 4
        assert it.balanced()
        assert all("nextDelay" in text for text in it.tool_texts())


def test_a_mixed_batch_costs_one_request() -> None:
    """D-07: what stands beside the decision is carried out, and nothing follows."""
    with product([Reply(tools=[shell("sleep 0.5; echo made > made.txt"), decision("complete")])]) as it:
        it.begin("--allow-all")
        assert counts(it.wait(expect=0)) == (1, 0, 1, 1)
        assert it.file_text("made.txt") == "made"
        it.wait_for(lambda: it.data("session.idle") or it.data("assistant.turn_end"), "the end of the turn")
        assert it.data("abort") == []
        assert it.balanced()


def test_the_decision_of_a_sub_agent_is_none() -> None:
    """Its turns are in the log, with its id, and are not calls of the loop."""

    def rule(body: Body) -> Reply | None:
        if "SUBTASK" not in heard(body)[0]:
            return None
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        return Reply(tools=[decision("fail")]) if answered == 0 else Reply("The helper is done.")

    with product([Reply(tools=[task("SUBTASK look")]), COMPLETE], rule) as it:
        it.begin()
        loop = it.wait(expect=0)
        assert (loop["state"], loop["lastDecision"]["decision"]) == ("completed", "complete")
        assert counts(loop) == (1, 0, 1, 2)
        assert it.balanced()
        assert len(it.requests) == 4
        theirs = [event for event in it.events("tool.execution_complete") if "agentId" in event]
        assert [event["data"]["success"] for event in theirs] == [False]
        assert "only the main agent decides" in theirs[0]["data"]["error"]


def test_a_run_that_copilot_starts_by_itself_is_shown_and_holds_the_wake_back_once() -> None:
    """X-11's rule for any run of the agent's own: the due wake is queued, not lost, not doubled."""
    gate = threading.Event()
    script = [
        Reply(tools=[shell("while [ ! -e built ]; do sleep 0.1; done; echo late", mode="async")]),
        Reply(tools=[decision("continue", nextDelay="1h")]),
        Reply("The build has ended, I have seen it.", gate=gate),
        COMPLETE,
    ]
    with product(script) as it:
        it.begin("--allow-all")
        it.until(state="waiting")
        (it.project / "built").touch()
        it.server.wait_for_requests(3)
        it.until_event("assistant.turn_start", 3)  # the supervisor knows that Copilot is at work
        it.act("update", "--every", "1s")
        it.until(state="queued")
        gate.set()
        assert counts(it.wait(expect=0)) == (2, 0, 2, 3)
        assert it.balanced()
        assert [text.split("\n")[2] for text in it.heard() if "[loop iteration]" in text] == [
            "Iteration: 1 of 50",
            "Iteration: 2 of 50",
        ]
        own = [event for event in it.events("assistant.message") if "iteration" not in event]
        assert [event["data"]["text"] for event in own] == ["The build has ended, I have seen it."]


def test_a_shell_that_never_ends_holds_nothing_up() -> None:
    script = [Reply(tools=[shell("sleep 300", mode="async")]), Reply(tools=[decision("continue")]), COMPLETE]
    with product(script) as it:
        it.begin("--allow-all", every="1s")
        assert counts(it.wait(expect=0)) == (2, 0, 2, 3)
        assert it.balanced()


def test_a_response_cut_by_its_length_is_observed() -> None:
    """Copilot asks for the rest by itself; the calls are counted."""
    with product([Reply("half of an ans", finish="length"), COMPLETE]) as it:
        it.begin()
        assert counts(it.wait(expect=0)) == (1, 0, 1, 2)
        assert [data["stopReason"] for data in it.data("assistant.turn_end")] == ["length", "toolUse"]
        assert it.data("assistant.message")[0]["text"] == "half of an ans"
        assert it.balanced()


def test_a_rate_limit_is_retried_by_copilot_and_each_request_is_counted() -> None:
    with product([Reply(status=429, headers={"retry-after": "1"}), COMPLETE]) as it:
        it.begin()
        assert counts(it.wait(expect=0)) == (1, 0, 1, 2)
        ends = it.data("assistant.turn_end")
        assert [(end["stopReason"], end.get("error", {}).get("kind")) for end in ends] == [
            ("error", "rate_limit"),
            ("toolUse", None),
        ]
        assert it.balanced()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=429, headers={"retry-after": "300"}), "rate_limit"),
        (Reply(status=400, error="no such model"), "other"),
        (Reply(), "other"),
    ],
    ids=["rate limit", "bad request", "empty answer"],
)
def test_an_error_is_told_and_never_taken_for_success(reply: Reply, kind: str) -> None:
    with product([reply, reply]) as it:
        it.begin("--continuity", "off")
        loop = it.wait(expect=14)
        assert (loop["pauseReason"], *counts(loop)) == ("protocol_error", 1, 1, 2, 2)
        assert [error["kind"] for error in it.data("session.error")] == [kind, kind]
        assert it.balanced()


def test_an_interrupted_iteration_is_handed_over_again() -> None:
    """Copilot gives up on such a wait; it cannot go on silently, so the same envelope comes once more."""
    with product([Reply(status=429, headers={"retry-after": "300"}), COMPLETE]) as it:
        it.begin("--continuity-stream-delay-ms", "0")
        assert counts(it.wait(expect=0)) == (1, 0, 2, 2)
        assert it.data("continuity.recovery") == [{"kind": "stream", "attempt": 1, "waitMs": 0}]
        assert [data["origin"] for data in it.data("user.message")] == ["loop", "loop"]
        assert it.balanced()


@pytest.mark.parametrize("where", ["headers", "stream"])
def test_a_hanging_provider_is_ended_by_the_watchdog_and_is_an_omission(where: str) -> None:
    with product([Reply("half", hang=where), COMPLETE]) as it:
        it.configure('[agent]\nsilence_timeout = "8s"\n')
        it.begin()
        assert counts(it.wait(expect=0)) == (1, 1, 2, 2)
        assert it.data("abort") == [{"reason": "watchdog"}]
        it.server.wait_for_hangups(1)
        assert it.balanced()


def test_a_wait_for_a_rate_limit_is_no_silence() -> None:
    """Copilot waits as long as the provider says, without an event; the watchdog knows."""
    with product([Reply(status=429, headers={"retry-after": "14"}), COMPLETE]) as it:
        it.configure('[agent]\nsilence_timeout = "8s"\n')
        it.begin()
        assert counts(it.wait(expect=0)) == (1, 0, 1, 2)
        assert it.data("abort") == []


def test_an_abort_in_mid_turn_pauses_the_loop_and_resume_goes_on() -> None:
    with product([Reply("half", hang="stream"), COMPLETE]) as it:
        it.begin()
        it.server.wait_for_requests(1)
        it.act("abort")
        loop = it.wait(expect=16)
        assert (loop["state"], loop["pauseReason"]) == ("paused", "interrupted")
        assert it.data("abort") == [{"reason": "user"}]
        assert it.act("abort", expect=4).err.strip() == "loopsup: no turn is in flight"
        it.act("resume")
        assert counts(it.wait(expect=0)) == (2, 0, 2, 2)
        assert it.balanced()
