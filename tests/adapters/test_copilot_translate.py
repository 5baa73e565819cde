"""Copilot's stream into the vocabulary: golden transcripts of the real CLI, and what none of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import Doing
from loopsup.wire import events as ev
from loopsup_copilot.shapes import classify
from loopsup_copilot.translate import KNOWN, Now, Output, PromptBegun, RunSettled, Translator, Working
from loopsup_copilot.voice import Emit

GOLDEN = Path(__file__).parent / "golden" / "copilot"
NAMES = sorted(path.name.removesuffix(".out.jsonl") for path in GOLDEN.glob("*.out.jsonl"))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def row(output: Output) -> list[Any]:
    match output:
        case Emit(kind, data, agent_id):
            return ["emit", kind, dict(data), *([] if agent_id is None else [agent_id])]
        case Now(doing):
            return ["doing", doing.value]
        case RunSettled(aborted):
            return ["settled", aborted]
        case _:
            return [type(output).__name__]


def fed(*events: tuple[str, dict[str, Any]], agent: str | None = None) -> list[Output]:
    return told(Translator(), *events, agent=agent)


def told(translator: Translator, *events: tuple[str, dict[str, Any]], agent: str | None = None) -> list[Output]:
    extra = {} if agent is None else {"agentId": agent}
    return [out for kind, data in events for out in translator.feed({"type": kind, "data": data, **extra})]


CALL = ("model.call_start", {"turnId": "0"})
END = ("assistant.turn_end", {"turnId": "0"})


@pytest.mark.parametrize("name", NAMES)
def test_the_translator_says_what_was_read_and_found_right(name: str) -> None:
    translator = Translator()
    got = [row(out) for record in lines(GOLDEN / f"{name}.jsonl") for out in translator.feed(record)]
    assert got == lines(GOLDEN / f"{name}.out.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_in_every_transcript_turns_are_requests_and_nothing_stays_open(name: str) -> None:
    """A-08, A-05: one pair for each request, its end after its tools; X-13: nothing after the settlement."""
    records = lines(GOLDEN / f"{name}.jsonl")
    out = lines(GOLDEN / f"{name}.out.jsonl")
    calls = sum(record["type"] == "model.call_start" for record in records)
    assert sum(one[:2] == ["emit", ev.TURN_START] for one in out) == calls
    assert sum(one[:2] == ["emit", ev.TURN_END] for one in out) == calls
    assert out[-1][0] == "settled"
    started, over = (
        sorted(one[2]["toolCallId"] for one in out if one[:2] == ["emit", kind])
        for kind in (ev.TOOL_START, ev.TOOL_COMPLETE)
    )
    assert started == over


@pytest.mark.parametrize("name", NAMES)
def test_no_transcript_has_a_prompt_of_the_vendor(name: str) -> None:
    raw = (GOLDEN / f"{name}.jsonl").read_text()
    assert "system.message" not in raw
    assert "You are" not in raw
    assert all(record["type"] in KNOWN for record in lines(GOLDEN / f"{name}.jsonl"))


def test_the_end_of_a_session_wide_wait_is_not_the_end_of_a_run() -> None:
    assert fed(("session.idle", {"mode": "interactive"})) == []
    assert fed(("assistant.idle", {})) == [RunSettled(False)]


def test_a_sub_agent_neither_starts_nor_settles_nor_decides_what_is_done() -> None:
    """Case 165's neighbour: its turns are told apart."""
    translator = Translator()
    out = told(translator, ("assistant.turn_start", {}), CALL, ("assistant.idle", {}), agent="a1")
    assert out == [Emit(ev.TURN_START, {"turnId": "0"}, "a1")]
    assert told(translator, CALL)[1] == Emit(ev.TURN_START, {"turnId": "0"})


def test_a_sub_agent_that_fails_leaves_no_turn_open() -> None:
    translator = Translator()
    told(translator, CALL, agent="a1")
    assert told(translator, ("subagent.failed", {"error": "x"}), agent="a1") == [
        Emit(ev.TURN_END, {"turnId": "0", "stopReason": "stop"}, "a1")
    ]


def test_copilots_own_words_about_a_shell_are_no_message_of_the_model() -> None:
    out = fed(
        ("assistant.message", {"content": "", "toolRequests": [{"name": "read_bash", "toolCallId": "x"}]}),
        ("tool.execution_start", {"toolCallId": "x", "toolName": "read_bash", "arguments": {}}),
        ("tool.execution_complete", {"toolCallId": "x", "success": True, "result": {"content": "late"}}),
    )
    assert out == []


def test_a_user_message_that_is_not_ours_begins_no_prompt() -> None:
    assert fed(("user.message", {"content": "go on", "source": "autopilot"})) == []
    assert fed(("user.message", {"content": "go on"})) == [PromptBegun()]


def test_task_complete_is_told_and_is_nothing_else() -> None:
    """X-10, A-14..A-17."""
    assert fed(("session.task_complete", {"success": True, "summary": "all done"})) == [
        Emit(ev.SESSION_TASK_COMPLETE, {"summary": "all done"})
    ]
    assert fed(("session.task_complete", {})) == [Emit(ev.SESSION_TASK_COMPLETE, {})]


def test_a_compaction_is_shown_and_is_no_turn() -> None:
    """D-28."""
    assert fed(("session.compaction_start", {}), ("session.compaction_complete", {"success": True})) == [
        Now(Doing.COMPACTION),
        Emit(ev.SESSION_COMPACTION, {}),
        Now(Doing.NOTHING),
    ]
    assert fed(("session.compaction_complete", {"success": False})) == []


def test_a_compaction_beside_a_model_request_does_not_hide_its_silence() -> None:
    translator = Translator()
    told(translator, CALL)
    assert told(translator, ("session.compaction_start", {})) == []


def test_the_last_attempt_that_failed_is_a_turn_that_ended_with_an_error() -> None:
    failure = ("model.call_failure", {"statusCode": 500, "errorMessage": '{"message":"overheated"}'})
    out = fed(CALL, failure, END, ("session.error", {"errorType": "query", "message": "500 overheated"}))
    assert out == [
        Working(),
        Emit(ev.TURN_START, {"turnId": "0"}),
        Now(Doing.MODEL),
        Now(Doing.BACKOFF),
        Emit(
            ev.TURN_END,
            {"turnId": "0", "stopReason": "error", "error": {"kind": "other", "message": "500 overheated"}},
        ),
        Now(Doing.NOTHING),
        Emit(ev.SESSION_ERROR, {"kind": "other", "message": "500 overheated"}),
    ]


def test_a_process_that_dies_leaves_nothing_open_and_nothing_settled() -> None:
    translator = Translator()
    told(translator, CALL, agent="a1")
    told(translator, CALL, ("tool.execution_start", {"toolCallId": "t", "toolName": "bash", "arguments": {}}))
    assert translator.lost() == [
        Emit(ev.TURN_END, {"turnId": "0", "stopReason": "aborted"}, "a1"),
        Emit(
            ev.TOOL_COMPLETE,
            {"toolCallId": "t", "toolName": "bash", "success": False, "error": "the response was aborted"},
        ),
        Emit(ev.TURN_END, {"turnId": "0", "stopReason": "aborted"}),
        Now(Doing.NOTHING),
    ]
    assert translator.lost() == []


@pytest.mark.parametrize("kind", sorted(KNOWN))
@pytest.mark.parametrize("data", [None, [], "x", {}, {"toolRequests": 3, "arguments": "x", "result": [], "error": 1}])
def test_a_malformed_event_is_no_crash(kind: str, data: Any) -> None:
    translator = Translator()
    translator.feed({"type": "model.call_start", "data": {}})
    for agent in (None, 7, "a1"):
        for out in translator.feed({"type": kind, "data": data, "agentId": agent}):
            if isinstance(out, Emit):
                json.dumps(dict(out.data), allow_nan=False)
    assert translator.feed({"type": "something.new", "data": data}) == []
    assert translator.feed({}) == []


@pytest.mark.parametrize(
    ("error_type", "message", "status", "expected"),
    [
        ("rate_limit", "slow down", 429, {"kind": "rate_limit", "message": "429 slow down"}),
        ("authentication", "HTTP 401 refused", 401, {"kind": "auth", "message": "HTTP 401 refused"}),
        ("query", "Could not connect to local model provider", None, {"kind": "network"}),
        ("", "Failed to finalize chat-completions stream: missing finish_reason", None, {"kind": "network"}),
        ("query", "Request exceeds the model's prompt budget", None, {"kind": "overflow"}),
        ("query", "No response was returned.", None, {"kind": "other"}),
        ("query", "teapot", 418, {"kind": "other", "message": "418 teapot"}),
        ("", "", None, {"kind": "other", "message": "the request failed"}),
        ("", '{"message":"busy"}', 429, {"kind": "rate_limit", "message": "429 busy"}),
        ("", '"plain"', None, {"message": "plain"}),
    ],
)
def test_errors_are_named(error_type: str, message: str, status: object, expected: dict[str, str]) -> None:
    assert classify(error_type, message, status).items() >= expected.items()
