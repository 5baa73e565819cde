"""LoopAttentionEventV1, byte for byte."""

from __future__ import annotations

import json

from loopsup.core.model import Attention, AttentionStatus
from loopsup.wire.attention import AttentionSession, attention_bytes, attention_object

T0 = 1_791_590_400_000
ATTENTION = Attention(
    AttentionStatus.DURATION_LIMIT, "The loop ran 24h.", "extension", "deadline reached", 3, 50, 1, 86_400_000, 0,
    T0 + 86_400_000, T0 + 90_000_000,
)  # fmt: skip
KEYS = [
    "version",
    "status",
    "summary",
    "evidence",
    "objective",
    "iterationCount",
    "maxIterations",
    "protocolRetryCount",
    "calendarElapsedMs",
    "deadlineRemainingMs",
    "session",
    "endedAt",
    "observedAt",
]


def test_every_field_is_there_in_the_documented_order() -> None:
    obj = attention_object(ATTENTION, "do it", AttentionSession("s1", "/x/s1.jsonl", "/work"))
    assert list(obj) == KEYS
    assert obj == {
        "version": 1,
        "status": "duration_limit",
        "summary": "The loop ran 24h.",
        "evidence": {"source": "extension", "text": "deadline reached"},
        "objective": "do it",
        "iterationCount": 3,
        "maxIterations": 50,
        "protocolRetryCount": 1,
        "calendarElapsedMs": 86_400_000,
        "deadlineRemainingMs": 0,
        "session": {"id": "s1", "file": "/x/s1.jsonl", "cwd": "/work"},
        "endedAt": "2026-10-11T00:00:00.000Z",
        "observedAt": "2026-10-11T01:00:00.000Z",
    }


def test_no_file_means_no_key() -> None:
    obj = attention_object(ATTENTION, "do it", AttentionSession("s1", None, "/work"))
    assert obj["session"] == {"id": "s1", "cwd": "/work"}


def test_the_hook_reads_one_ascii_line() -> None:
    session = AttentionSession("s1", None, "/w\udcff")
    raw = attention_bytes(ATTENTION, "a\nb\u2028", session)
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert json.loads(raw) == attention_object(ATTENTION, "a\nb\u2028", session)
