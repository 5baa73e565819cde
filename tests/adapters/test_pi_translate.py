"""Pi's stream into the event vocabulary: golden transcripts of the real Pi, and malformed records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopsup.wire.events import EPHEMERAL, STOP_REASONS, TYPES
from loopsup_pi.provider_errors import classify
from loopsup_pi.translate import Emit, RunSettled, RunStarted, Translator
from tests.support.pi_record import translated

GOLDEN = Path(__file__).parent / "golden" / "pi"
NAMES = sorted(path.name.removesuffix(".out.jsonl") for path in GOLDEN.glob("*.out.jsonl"))


def lines(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="utf-8").split("\n")[:-1]


def rows(name: str) -> list[Any]:
    return [json.loads(line) for line in lines(f"{name}.out.jsonl")]


def test_there_are_transcripts() -> None:
    assert {"decision", "mixed_batch", "retry", "abort_in_tool", "compaction"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_gives_these_events(name: str) -> None:
    assert [json.loads(json.dumps(row)) for row in translated(lines(f"{name}.jsonl"))] == rows(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_event_is_of_the_vocabulary(name: str) -> None:
    for row in rows(name):
        if row[0] != "emit":
            continue
        allowed = {key.rstrip("?") for key in TYPES[row[1]]}
        required = {key for key in TYPES[row[1]] if not key.endswith("?")}
        assert required <= set(row[2]) <= allowed
        assert row[2].get("stopReason", "stop") in STOP_REASONS


@pytest.mark.parametrize("name", NAMES)
def test_turns_are_paired_and_tools_lie_inside_them(name: str) -> None:
    """A-02, A-05: the end of a turn comes after all its tools."""
    open_turn: str | None = None
    for row in rows(name):
        match row:
            case ["emit", "assistant.turn_start", {"turnId": turn}]:
                assert open_turn is None
                open_turn = turn
            case ["emit", "assistant.turn_end", {"turnId": turn}]:
                assert open_turn == turn
                open_turn = None
            case ["emit", kind, _] if kind.startswith("tool.") or kind == "assistant.message":
                assert open_turn is not None
    assert open_turn is None
    assert [row[0] for row in rows(name)].count("settled") == 1
    assert rows(name)[-1][0] == "settled"


def test_no_prompt_or_schema_of_the_vendor_is_stored() -> None:
    for name in NAMES:
        text = "\n".join(lines(f"{name}.jsonl"))
        assert '"role": "system"' not in text
        assert "toolsAdded" not in text
        assert "coding assistant" not in text


def test_a_transcript_cut_anywhere_gives_a_prefix_of_the_events() -> None:
    whole = rows("mixed_batch")
    recorded = lines("mixed_batch.jsonl")
    for cut in range(len(recorded)):
        some = [json.loads(json.dumps(row)) for row in translated(recorded[:cut])]
        assert some == whole[: len(some)]


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_dies_anywhere_leaves_nothing_open(name: str) -> None:
    recorded = lines(f"{name}.jsonl")
    for cut in range(len(recorded) + 1):
        translator = Translator()
        outputs = [output for line in recorded[:cut] for output in translator.feed(json.loads(line))]
        kinds = [output.kind for output in [*outputs, *translator.lost()] if isinstance(output, Emit)]
        assert kinds.count("assistant.turn_start") == kinds.count("assistant.turn_end")
        assert kinds.count("tool.execution_start") == kinds.count("tool.execution_complete")
        assert translator.lost() == []


STRANGE = st.sampled_from(
    (
        *(None, True, 7, "x", "request", "decision", "loopsup", [], [1], {}, {"content": 3}, {"delta": 1}),
        {"role": "assistant", "stopReason": "pending"},
        {"role": "assistant", "stopReason": "aborted", "content": []},
        {"role": "assistant", "stopReason": "error", "content": [1, {}], "usage": {"cost": 1}},
        {"role": "assistant", "stopReason": 9, "content": [{"type": "toolCall"}], "usage": 3},
        {"type": "text_delta", "delta": "d"},
    )
)
KEYS = ("message", "assistantMessageEvent", "result", "args", "aborted", "statusKey", "statusText", "toolCallId")
TYPES_OF_PI = (
    *("agent_start", "agent_end", "agent_settled", "turn_start", "turn_end", "message_start", "message_update"),
    *("message_end", "tool_execution_start", "tool_execution_end", "auto_retry_start", "compaction_start"),
    *("compaction_end", "extension_ui_request", "something_new"),
)
RECORDS = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(TYPES_OF_PI),
    st.dictionaries(st.sampled_from(KEYS), STRANGE, max_size=4),
)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORDS, max_size=12))
def test_strange_records_never_break_the_pairs(records: list[dict[str, Any]]) -> None:
    translator = Translator()
    outputs = [output for record in records for output in translator.feed(record)]
    kinds = [output.kind for output in outputs if isinstance(output, Emit)]
    assert kinds.count("assistant.turn_start") - kinds.count("assistant.turn_end") in (0, 1)
    started = sum(isinstance(output, RunStarted) for output in outputs)
    assert started <= sum(isinstance(output, RunSettled) for output in outputs) + 1


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('429: {"message":"slow down"}', "rate_limit"),
        ("insufficient_quota", "rate_limit"),
        ("401: Incorrect API key provided", "auth"),
        ("This model's maximum context length is 8192 tokens", "overflow"),
        ("Stream ended without finish_reason", "network"),
        ("terminated: Body Timeout Error (UND_ERR_BODY_TIMEOUT)", "network"),
        ("Provider finish_reason: content_filter", "other"),
        ("500: oops", "other"),
    ],
)
def test_an_error_gets_a_kind(message: str, kind: str) -> None:
    assert classify(message) == {"kind": kind, "message": message}


def test_large_arguments_are_bounded() -> None:
    record = {
        "type": "tool_execution_start",
        "toolCallId": "c",
        "toolName": "write",
        "args": {"content": "x" * 50_000},
    }
    (emit,) = [output for output in Translator().feed(record) if isinstance(output, Emit)]
    assert len(json.dumps(emit.data)) < 20_000


def test_deltas_are_live_only() -> None:
    kinds = {row[1] for name in NAMES for row in rows(name) if row[0] == "emit" and row[1].endswith("_delta")}
    assert kinds <= EPHEMERAL
    assert len(kinds) == 2
