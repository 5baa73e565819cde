"""The ACP adapter and an agent that misbehaves: every fault of a stuck turn, a lying stream, a dead start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import AbortReason, Accepted, AgentUnableError, Conversation, NotFoundError, Refused
from loopsup.testing.recording import Asked, AskOver, Emitted, Lost, Settled
from loopsup_acp import opening
from loopsup_acp.permissions import is_ours
from loopsup_acp.profiles import ANY, KNOWN
from tests.support.acp_harness import AcpHarness, a_carrier, running

pytestmark = pytest.mark.slow

COMPLETE = {"decision": "complete", "summary": "green", "evidence": "ran it"}
SCENARIO_S = 100.0


@pytest.fixture
def acp(tmp_path: Path) -> AcpHarness:
    return AcpHarness(tmp_path)


def drive(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), SCENARIO_S))


def unable(acp: AcpHarness, **how: Any) -> str:
    """The words with which a start fails."""

    async def scenario() -> str:
        try:
            async with running(acp, **how):
                return "it came up"
        except AgentUnableError as error:
            return str(error)

    return asyncio.run(asyncio.wait_for(scenario(), SCENARIO_S))


# ---- it does not come up ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"exit": 3, "stderr": "no key"}, "ended at its start: exit status 3; no key"),
        ({"silent": ["initialize"]}, "did not answer initialize within 5 s"),
        ({"silent": ["session/new"]}, "did not answer session/new within 2 s"),
        ({"protocol": 9}, "speaks version 9 of ACP; loopsup speaks 1"),
        (
            {"errors": {"session/new": {"code": -32000, "message": "Authentication required"}}},
            "wants you to log in first (Authentication required): run it yourself once and do so",
        ),
        (
            {
                "errors": {
                    "session/new": {"code": -32603, "message": "Internal error", "data": {"details": "no disk"}}
                }
            },
            "refused session/new: Internal error (no disk)",
        ),
    ],
)
def test_a_start_that_fails_says_why(
    acp: AcpHarness, monkeypatch: pytest.MonkeyPatch, start: dict[str, Any], words: str
) -> None:
    if "silent" in start:
        asyncio.run(_warm())
        monkeypatch.setattr(opening, "OPENING_S", 5.0 if "initialize" in start["silent"] else 60.0)
        monkeypatch.setattr(opening, "SESSION_S", 2.0)
    acp.write([[]], **start)
    assert words in unable(acp)


async def _warm() -> None:
    """The SDK is imported in the first second of the first agent."""
    await asyncio.to_thread(__import__, "acp")


def test_a_dead_conversation_is_not_waited_for_for_ever_and_not_replaced(
    acp: AcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Conversation("gone", None, Path("/"))
    acp.write([[]], silent=["session/load"], can={"loadSession": True})
    with monkeypatch.context() as briefly:
        briefly.setattr(opening, "SESSION_S", 4.0)
        assert "did not answer session/load within 4 s" in unable(acp, resume=gone)
    acp.write([[]], errors={"session/resume": {"code": -32603, "message": "OpenCode service failure"}})
    assert "refused session/resume: OpenCode service failure" in unable(acp, resume=gone)
    acp.write([[]], can={})
    assert "cannot go on with an earlier conversation; start a new session" in unable(acp, resume=gone)
    assert acp.kept("open") == []


def test_an_agent_without_the_carrier_does_not_come_up(acp: AcpHarness) -> None:
    async def never(seconds: float) -> str | None:
        return f"nobody came within {seconds:g} s"

    acp.write([[]], carrier="ignore")
    words = unable(acp, carrier=a_carrier(never))
    assert words.endswith("nobody came within 15 s")
    assert acp.kept("user") == []


def test_the_carrier_goes_into_the_session_and_the_environment(acp: AcpHarness) -> None:
    acp.write([[{"run": ["printenv", "LOOPSUP_TOKEN"]}]], carrier="ignore")

    async def scenario() -> None:
        async with running(acp, carrier=a_carrier(), profile=KNOWN["claude"]) as it:
            await it.round()

    drive(scenario)
    (opened,) = acp.kept("open")
    assert opened == {
        "kind": "open",
        "method": "session/new",
        "meta": {"claudeCode": {"options": {"allowedTools": ["mcp__loopsup__loop_control"]}}},
        "servers": ["loopsup"],
    }
    assert acp.tool_results() == ["[0] t0ken\n"]
    assert not any("t0ken" in line for line in acp.logged)


def test_words_that_are_no_protocol_go_to_the_log(acp: AcpHarness) -> None:
    acp.write([[{"noise": "Attempt 1 failed with status 429"}, {"say": "hello"}]], noise="a warning")

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
            assert it.events.emitted("assistant.message")[0]["text"] == "hello"

    drive(scenario)
    assert [line.partition(": ")[2] for line in acp.logged] == ["a warning", "Attempt 1 failed with status 429"]


# ---- it lies ----------------------------------------------------------------------------------------


def test_a_claim_in_the_stream_decides_nothing(acp: AcpHarness) -> None:
    acp.write([[{"claim": COMPLETE}, {"say": "all done"}]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
            assert it.events.decisions() == []
            (shown,) = it.events.emitted("tool.execution_start")
            assert (shown["toolName"], shown["arguments"]) == ("loopsup_loop_control", COMPLETE)

    drive(scenario)


@pytest.mark.parametrize("late", [False, True], ids=["before-the-answer", "also-after-it"])
def test_a_replay_is_no_news(acp: AcpHarness, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`session/load` tells the whole conversation again, decisions and all."""
    monkeypatch.setattr(opening, "REPLAY_QUIET_S", 4.0)  # the agent may be held up in the middle of it
    monkeypatch.setattr(opening, "REPLAY_MAX_S", 20.0)
    script = [[{"say": "old words"}, {"tool": "ls", "id": "t1"}, {"claim": COMPLETE}], [{"say": "new words"}]]

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
        acp.write(script, can={"loadSession": True}, late_replay=late)
        async with running(acp, it.started.conversation) as again:
            assert again.events.calls == []
            await again.round()
            kinds = [call.kind for call in again.events.calls if isinstance(call, Emitted)]
            assert kinds == [
                "assistant.turn_start",
                "assistant.message_delta",
                "assistant.message",
                "assistant.turn_end",
            ]
            assert again.events.emitted("assistant.message")[0]["text"] == "new words"

    acp.write(script)
    drive(scenario)
    assert [item["method"] for item in acp.kept("open")] == ["session/new", "session/load"]


def test_a_replayed_tool_call_is_old_also_in_the_next_prompt(acp: AcpHarness) -> None:
    """Gemini goes on with the replay when the prompt is already there."""
    script = [[{"tool": "ls", "id": "t1"}], [{"tool": "ls", "id": "t1"}, {"tool": "pwd", "id": "t2"}]]

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
        acp.write(script, can={"loadSession": True})
        async with running(acp, it.started.conversation) as again:
            await again.round()
            assert [data["toolCallId"] for data in again.events.emitted("tool.execution_start")] == ["t2"]

    acp.write(script)
    drive(scenario)


def test_resume_is_preferred_because_it_replays_nothing(acp: AcpHarness) -> None:
    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
        async with running(acp, it.started.conversation):
            pass

    acp.write([[{"say": "hello"}]])
    drive(scenario)
    assert [item["method"] for item in acp.kept("open")] == ["session/new", "session/resume"]


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ({"stop": "end_turn"}, {"stopReason": "stop"}),
        ({"stop": "max_tokens"}, {"stopReason": "length"}),
        ({"stop": "something_new"}, {"stopReason": "stop"}),
        (
            {"stop": "refusal"},
            {"stopReason": "error", "error": {"kind": "other", "message": "the model refused to go on"}},
        ),
        (
            {"error": {"code": -32603, "message": "Internal error", "data": {"errorKind": "rate_limit"}}},
            {"stopReason": "error", "error": {"kind": "rate_limit", "message": "Internal error"}},
        ),
        (
            {"stop": "end_turn", "usage": {"inputTokens": 7, "outputTokens": 3, "cachedReadTokens": 2}},
            {"stopReason": "stop", "usage": {"input": 7, "output": 3, "cacheRead": 2, "cacheWrite": 0}},
        ),
        (
            {"stop": "end_turn", "_meta": {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 1}}}},
            {"stopReason": "stop", "usage": {"input": 5, "output": 1}},
        ),
    ],
)
def test_how_a_prompt_ended_is_told_in_one_turn_end(
    acp: AcpHarness, answer: dict[str, Any], end: dict[str, Any]
) -> None:
    acp.write([[answer]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
            assert it.events.emitted("assistant.turn_end") == [{"turnId": "1", **end}]
            assert it.events.settlements() == [False]

    drive(scenario)


def test_a_turn_costs_what_the_sum_grew_by(acp: AcpHarness) -> None:
    acp.write([[{"cost": 0.25}], [{"cost": 0.25}, {"cost": 0.375}], [{"say": "free"}]])
    costs: list[object] = []

    async def scenario() -> None:
        async with running(acp, profile=KNOWN["opencode"]) as it:
            for _ in range(3):
                await it.round()
            costs.extend(data.get("usage") for data in it.events.emitted("assistant.turn_end"))
        async with running(acp, it.started.conversation) as again:  # what it cost before is not known
            await again.round()
            costs.extend(data.get("usage") for data in again.events.emitted("assistant.turn_end"))

    drive(scenario)
    assert costs == [{"costUsd": 0.25}, {"costUsd": 0.125}, None, None]


# ---- it is stuck ------------------------------------------------------------------------------------


def test_a_turn_that_never_ends_is_cancelled(acp: AcpHarness) -> None:
    acp.write([[{"say": "I did it"}, {"tool": "make"}, {"hang": True}], [{"say": "again"}]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.hand_over()
            await it.events.wait_for("the tool", lambda: bool(it.events.emitted("tool.execution_complete")))
            refused = await it.hand_over("one more thing")
            assert isinstance(refused, Refused)
            assert refused.busy
            await it.agent.abort(AbortReason.WATCHDOG)
            await it.events.wait_for("`settled`", lambda: it.events.settlements() == [True])
            await it.round()
            assert it.events.settlements() == [True, False]

    drive(scenario)


def test_an_agent_that_ignores_cancel_is_ended_by_close(acp: AcpHarness) -> None:
    acp.write([[{"hang": True}]], ignore_cancel=True)

    async def scenario() -> None:
        async with running(acp) as it:
            await it.hand_over()
            await it.agent.abort(AbortReason.USER)
            await it.agent.close()
            assert it.agent.pid is None
            assert it.events.losses() == []
            (end,) = it.events.emitted("assistant.turn_end")
            assert end["stopReason"] in ("aborted", "error")

    drive(scenario)


def test_a_flood_is_read_and_cut(acp: AcpHarness) -> None:
    acp.write([[{"flood": 30_000}]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()
            (message,) = it.events.emitted("assistant.message")
            assert len(message["text"]) < 1024 * 1024 + 50
            assert message["text"].endswith("more characters)")

    drive(scenario)


def test_an_agent_that_dies_is_a_loss_with_its_status(acp: AcpHarness) -> None:
    acp.write([[{"tool": "make"}, {"die": 3}]])

    async def scenario() -> None:
        async with running(acp) as it:
            assert await it.hand_over() == Accepted()
            await it.events.wait_for("`lost`", lambda: bool(it.events.losses()))
            assert it.events.calls[-1] == Lost("exit status 3")
            assert it.events.settlements() == []
            assert len(it.events.emitted("assistant.turn_end")) == 1

    drive(scenario)


def test_an_answer_before_the_death_still_counts(acp: AcpHarness) -> None:
    acp.write([[{"say": "bye"}, {"last": 4}]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.hand_over()
            await it.events.wait_for("`lost`", lambda: bool(it.events.losses()))
            assert it.events.calls[-2:] == [Settled(aborted=False), Lost("exit status 4")]

    drive(scenario)


def test_what_it_may_not_ask_for_is_refused_at_once(acp: AcpHarness) -> None:
    """An agent that asks for a file or a terminal would wait for ever for a client that ignores it."""
    methods = ["fs/read_text_file", "terminal/create", "elicitation/create", "qwen/whatever"]
    acp.write([[{"request": method} for method in methods]])

    async def scenario() -> None:
        async with running(acp) as it:
            await it.round()

    drive(scenario)
    codes = [item["answer"]["code"] for item in acp.kept("answer")]
    assert codes == [-32601] * 4


# ---- it asks ----------------------------------------------------------------------------------------

ASKING = [[{"tool": "rm -rf build", "ask": True}, {"say": "done"}]]


@pytest.mark.parametrize(("allow", "option"), [(True, "once"), (False, "no")])
def test_a_question_is_answered_for_this_once(acp: AcpHarness, allow: bool, option: str) -> None:
    acp.write(ASKING)

    async def scenario() -> None:
        async with running(acp) as it:
            await it.hand_over()
            await it.events.wait_for("`ask`", lambda: any(isinstance(call, Asked) for call in it.events.calls))
            (asked,) = [call.question for call in it.events.calls if isinstance(call, Asked)]
            assert (asked.kind, asked.tool) == ("permission", "execute")
            assert asked.text == 'rm -rf build {"command": "rm -rf build"}'
            await it.agent.answer("another", True, "")
            await it.agent.answer(asked.id, allow, "nobody is here")
            await it.events.wait_for("`settled`", lambda: it.events.settlements() == [False])
            (tool,) = it.events.emitted("tool.execution_complete")
            assert tool["success"] is allow

    drive(scenario)
    (kept,) = acp.kept("permission")
    assert kept["answer"] == {"outcome": {"outcome": "selected", "optionId": option}}


def test_an_abort_answers_what_is_pending(acp: AcpHarness) -> None:
    acp.write(ASKING, ignore_cancel=True)

    async def scenario() -> None:
        async with running(acp) as it:
            await it.hand_over()
            await it.events.wait_for("`ask`", lambda: any(isinstance(call, Asked) for call in it.events.calls))
            await it.agent.abort(AbortReason.USER)
            await it.events.wait_for("`settled`", lambda: it.events.settlements() == [True])
            assert [call for call in it.events.calls if isinstance(call, AskOver)] == [AskOver("p1", "cancelled")]

    drive(scenario)
    (kept,) = acp.kept("permission")
    assert kept["answer"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("title", "asks"),
    [
        ("loopsup_loop_control", False),
        ("mcp__loopsup__loop_control", False),
        ("loop_control (loopsup MCP Server)", False),
        ("loop_control; rm -rf /", True),
        ("loop_control", True),  # with the argument `command`: a shell command of that name
    ],
)
def test_nobody_is_asked_about_our_own_tool(title: str, asks: bool) -> None:
    arguments = {"command": title} if asks else COMPLETE
    assert is_ours({"title": title, "rawInput": arguments}) is not asks
    assert is_ours({"title": title, "_meta": {"claudeCode": {"toolName": "Bash"}}}) is False


# ---- what is known before it runs -------------------------------------------------------------------


def test_a_conversation_cannot_be_adopted(acp: AcpHarness) -> None:
    with pytest.raises(NotFoundError, match="reopen a session of loopsup with --session NAME"):
        acp.adapter.locate("ses_1", Path("/"), {})


def test_the_table_says_what_was_tested() -> None:
    """A name without an end-to-end test is labelled."""
    tested = {path.stem.removeprefix("test_acp_") for path in Path(__file__).parents[1].glob("e2e/test_acp_*.py")}
    assert {name for name, profile in KNOWN.items() if profile.tested} == tested & KNOWN.keys()
    for profile in KNOWN.values():
        assert profile.summary.startswith("untested: ") is not profile.tested
    assert ANY.summary == "any agent that speaks the Agent Client Protocol; give its command line after --"
