"""Interrupted responses through the product, on the real Pi: what is asked again, and what it costs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from loopsup.wire.times import parse_instant
from tests.support.model_server import Body, Reply, bash, decision, user_texts
from tests.support.pi_product import PiProduct, product

pytestmark = [pytest.mark.pi, pytest.mark.slow]

CUT = Reply("a long stor", finish="length", output_tokens=4096)
BROKEN = Reply("half of", cut=True)
DONE = Reply(tools=[decision("complete")])
AT_ONCE = ("--continuity-stream-delay-ms", "0")
NOTE = """
  const parameters = { type: "object", properties: {} };
  pi.registerTool({ name: "note", label: "note", description: "take a note", parameters,
    async execute() { return { content: [{ type: "text", text: "noted" }], details: {}, terminate: true }; } });
"""


def counts(loop: dict[str, Any]) -> tuple[int, int, int, int]:
    """Iterations, reminders, prompts, LLM calls."""
    return loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"], loop["llmCalls"]


def recoveries(pi: PiProduct) -> list[tuple[str, int, int]]:
    return [(data["kind"], data["attempt"], data["waitMs"]) for data in pi.data("continuity.recovery")]


def same(bodies: list[Body]) -> bool:
    """All requests have the same messages."""
    return all(body["messages"] == bodies[0]["messages"] for body in bodies)


def test_off_is_the_baseline() -> None:
    """Case 142, C-70: one request, then the iteration has settled without a decision."""
    with product([CUT, DONE]) as pi:
        pi.begin("--continuity", "off")
        assert counts(pi.wait(expect=0)) == (1, 1, 2, 2)
        assert "a long stor" in json.dumps(pi.requests[1])
        assert user_texts(pi.requests[1])[-1].startswith("[loop reminder]")
        assert recoveries(pi) == []
        assert pi.balanced()


def test_the_output_limit_goes_on_with_the_same_words() -> None:
    """Case 141: on by default; two requests, one settlement, nothing injected, the raw answer in Pi's file."""
    with product([CUT, CUT, DONE]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert same(pi.requests)
        assert recoveries(pi) == [("length", 1, 0), ("length", 2, 0)]
        assert pi.entries("loopsup-recovery") == [
            {"v": 1, "kind": "length", "attempt": number, "waitMs": 0} for number in (1, 2)
        ]
        assert pi.pi_file.read_text().count("a long stor") == 2
        assert pi.data("user.message")[0]["origin"] == "loop"
        assert len(pi.data("user.message")) == 1
        assert pi.balanced()
        assert "(output limit: goes on at once, attempt 2)" in pi.act("logs").out


def test_a_cut_off_tool_call_runs_never_and_is_seen_by_nobody() -> None:
    """Case 143."""
    cut = Reply(tools=[bash("touch TRUNCATED")], finish="length", output_tokens=4096)
    with product([cut, DONE]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 2)
        assert same(pi.requests)
        assert not (pi.project / "TRUNCATED").exists()
        assert recoveries(pi) == []  # Pi goes on by itself there
        assert pi.balanced()


def test_what_was_done_before_the_limit_stays_done() -> None:
    """C-24."""
    with product([Reply("Looking.", [bash("echo ran >> ran.txt")]), CUT, DONE]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert same(pi.requests[1:])
        assert [m["role"] for m in pi.requests[2]["messages"]] == ["system", "user", "assistant", "tool"]
        assert (pi.project / "ran.txt").read_text() == "ran\n"


def test_the_budget_ends_and_each_iteration_has_its_own() -> None:
    """C-28, X-08: the reminder has none of its own."""
    go_on = Reply(tools=[decision("continue", nextDelay="1s")])
    with product([CUT, CUT, CUT, CUT, go_on, CUT, CUT, DONE]) as pi:
        pi.begin("--continuity-max-resumes", "2")
        pi.wait(expect=14)
        assert recoveries(pi) == [("length", 1, 0), ("length", 2, 0)]
        told = "the response was interrupted and is not continued: all 2 recoveries (length) of this request are used"
        assert [data["message"] for data in pi.data("loop.notice")] == [told, told]
        pi.act("resume")
        assert counts(pi.wait(expect=0)) == (3, 1, 4, 8)
        assert recoveries(pi)[2:] == [("length", 1, 0), ("length", 2, 0)]
        assert pi.balanced()


def test_a_broken_stream_goes_on_after_pis_own_retries() -> None:
    """Case 147: N = 1, S = 1: four requests for an error that persists, all the same."""
    with product([BROKEN] * 4 + [DONE], retry={"baseDelayMs": 20, "maxRetries": 1}) as pi:
        pi.configure("[continuity]\nstream_retries = 1\n")
        pi.begin(*AT_ONCE)
        assert counts(pi.wait(expect=0)) == (1, 1, 2, 5)
        assert same(pi.requests[:4])
        assert recoveries(pi) == [("stream", 1, 0)]
        assert pi.balanced()


def test_pis_own_retries_are_enough_where_they_help() -> None:
    """Case 209."""
    with product([BROKEN, Reply(status=503), DONE]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert recoveries(pi) == []


def test_an_empty_answer_goes_on() -> None:
    """Case 157."""
    with product([Reply(), Reply(" \n"), DONE]) as pi:
        pi.begin(*AT_ONCE)
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert same(pi.requests)
        assert recoveries(pi) == [("empty", 1, 0), ("empty", 2, 0)]


def test_a_tool_tail_goes_on_with_its_result() -> None:
    """Case 159; X-01: the decision is the last word of an iteration."""
    with product([Reply(tools=[("note", {})]), DONE]) as pi:
        pi.pi_world.extension("note", NOTE)
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 2)
        assert [m["role"] for m in pi.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
        assert recoveries(pi) == [("tool_tail", 1, 0)]
        ran = [data["toolName"] for data in pi.data("tool.execution_start")]
        assert ran == ["note", "loop_control"]


def test_a_report_that_needs_a_person_is_respected() -> None:
    """Case 158, C-61."""
    with product([Reply("I need a human."), Reply(tools=[decision("block")])]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=11)) == (1, 1, 2, 2)
        assert recoveries(pi) == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, error="invalid api key"),
        Reply(status=429, error="usage limit reached; check billing"),
        Reply(status=400, error="too long", code="context_length_exceeded"),
        Reply(status=400, error="no such thing"),
    ],
    ids=["auth", "money", "overflow", "unknown"],
)
def test_what_is_terminal_is_not_asked_again(reply: Reply) -> None:
    """C-55..C-60, case 153."""
    with product([reply, DONE]) as pi:
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 1, 2, 2)
        assert recoveries(pi) == []


@pytest.mark.parametrize("status", [400, 429], ids=["at-settlement", "pis-own-retry"])
@pytest.mark.parametrize(("words", "wait_ms"), [("1 min", 60_000), ("~0 min", 30_000), ("0 min", 0)])
def test_a_usage_limit_is_waited_out(status: int, words: str, wait_ms: int) -> None:
    """Cases 150 and 210, on a clock thirty times as fast: not one request before the time has come."""
    limit = Reply(status=status, error=f"usage limit reached. Try again in {words}")
    with product([limit, DONE]) as pi:
        pi.env["LOOPSUP_CLOCK_RATE"] = "30"
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 2)
        assert same(pi.requests)
        assert recoveries(pi) == [("usage_limit", 1, wait_ms)]
        waited, again = pi.events("continuity.recovery")[0], pi.events("assistant.turn_start")[1]
        assert wait_ms <= parse_instant(again["at"]) - parse_instant(waited["at"])
        assert pi.balanced()


def test_more_words_are_understood_where_the_configuration_says_so() -> None:
    """`guidance = "extended"`, on a clock thirty times as fast."""
    limits = [
        Reply(status=400, error="usage limit, resets in 15 seconds"),
        Reply(status=429, error='{"retry_after": 30}'),
    ]
    with product([*limits, DONE]) as pi:
        pi.env["LOOPSUP_CLOCK_RATE"] = "30"
        pi.configure('[continuity]\nguidance = "extended"\n')
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert recoveries(pi) == [("usage_limit", 1, 45_000), ("usage_limit", 2, 30_000)]


def test_a_usage_limit_without_a_time_is_polled() -> None:
    """C-46, on a clock two hundred times as fast."""
    limit = Reply(status=400, error="Codex error: The usage limit has been reached")
    with product([limit, limit, DONE]) as pi:
        pi.env["LOOPSUP_CLOCK_RATE"] = "200"
        pi.configure('[agent]\nsilence_timeout = "6h"\n')  # a quarter of an hour would be 4.5 s
        pi.begin()
        assert counts(pi.wait(expect=0)) == (1, 0, 1, 3)
        assert same(pi.requests)
        assert recoveries(pi) == [("usage_poll", 1, 600_000), ("usage_poll", 2, 600_000)]
        asked = [parse_instant(event["at"]) for event in pi.events("assistant.turn_start")]
        assert all(late - early >= 600_000 for early, late in itertools.pairwise(asked))


def test_settings_nobody_can_read_switch_it_off_and_say_so() -> None:
    """C-06."""
    with product([CUT, DONE]) as pi:
        pi.configure('[continuity]\nmax_resumes = "many"\n')
        started = pi.act("start", "--agent", "pi", "--every", "1h", "--detach", "x")
        problem = "'continuity.max_resumes' must be a whole number, 0 or more, or \"unlimited\""
        assert f"warning: configuration: {problem}; interrupted responses are not recovered" in started.err
        assert counts(pi.wait(expect=0)) == (1, 1, 2, 2)
        assert recoveries(pi) == []
        (notice,) = pi.data("loop.notice")
        assert problem in notice["message"]
