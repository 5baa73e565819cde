"""Journal lines: a record, another version kept byte for byte, or damage. Never an exception."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopsup.core.durations import MAX_MS
from loopsup.core.events import Event, Pause
from loopsup.core.model import (
    Auto,
    Decision,
    Delivery,
    Fixed,
    Flight,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Policy,
    PromptKind,
    Running,
    Verb,
    Waiting,
)
from loopsup.wire.codec import encode
from loopsup.wire.journal import Damaged, Record, UnknownVersion, decode_record, encode_record
from tests.wire.values import values

T0 = 1_791_590_400_000  # 2026-10-10T00:00:00.000Z
LOOP = Loop("l1", "look at it", Policy(Fixed(600_000)), T0, Waiting(Moment(T0 + 600_000, 1000)), iteration_count=3)
RECORD = Record(7, T0, Moment(T0, 400), Pause(), LOOP)


def line(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_record(RECORD)), **changes}).encode()


def loop_line(**changes: Any) -> bytes:
    return line(loop={**encode(LOOP), **changes})


def test_a_line_is_readable_by_people_and_other_programs() -> None:
    assert json.loads(encode_record(replace(RECORD, loop=replace(LOOP, objective="a\u2028b\ud800")))) == {
        "v": 1,
        "seq": 7,
        "at": "2026-10-10T00:00:00.000Z",
        "event": {"type": "pause", "wall": T0, "mono": 400},
        "loop": {
            "id": "l1",
            "objective": "a\u2028b\ud800",
            "policy": {
                "rhythm": {"type": "fixed", "every_ms": 600_000},
                "min_delay_ms": 60_000,
                "max_delay_ms": 86_400_000,
                "for_ms": 86_400_000,
                "max_iterations": 50,
                "misfire": {"type": "once"},
            },
            "started_at": T0,
            "phase": {"type": "waiting", "due": {"wall": T0 + 600_000, "mono": 1000}, "held": None},
            "iteration_count": 3,
            "protocol_retry_count": 0,
            "prompts_sent": 0,
            "llm_calls": 0,
            "generation": 0,
            "last_decision": None,
            "last_settled_at": None,
            "expired_deadlines": [],
            "last_attention": None,
            "driver": "resident",
            "last_missed": None,
        },
    }


@settings(deadline=None)  # a busy machine is no failure
@given(values(Event, 0, 10**12), st.integers(0, 2**52))
def test_every_event_comes_back_as_one_ascii_line(event: Event, seq: int) -> None:
    record = Record(seq, T0, Moment(T0, 5), event, LOOP)
    raw = encode_record(record)
    assert raw.isascii()
    assert raw.index(b"\n") == len(raw) - 1
    assert decode_record(raw) == record


@settings(deadline=None)  # a busy machine is no failure
@given(values(Loop, 1, 10**9))
def test_every_loop_comes_back(loop: Loop) -> None:
    record = replace(RECORD, loop=loop)
    assert decode_record(encode_record(record)) == record


def test_no_loop_is_null() -> None:
    assert decode_record(encode_record(replace(RECORD, loop=None))) == replace(RECORD, loop=None)


def test_crlf_and_unknown_keys_do_not_matter() -> None:
    assert decode_record(line(later={"a": 1})[:-1] + b"}\r\n") == RECORD
    assert decode_record(loop_line(mood="fine")) == RECORD


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "it is empty"),
        (b"  ", "it is empty"),
        (b"\0" * 300, "it is not JSON (Expecting value)"),
        (b'{"type":"custom","da', "it is not JSON (Unterminated string starting at)"),
        (b"\xff\xfe\x00", "it is not UTF-8 text"),
        (b"[1]", "it is not a JSON object"),
        (b"[" * 100_000, "it is not JSON (maximum recursion depth exceeded"),
        (b'{"seq":1}', "it has no version"),
        (line(v=None), "it has no version"),
        (line(v=True), "it has no version"),
        (line(v=1.0), "it has no version"),
        (line(seq=-1), "seq: it is out of range"),
        (line(seq="7"), "seq: expected an integer, found '7'"),
        (line(at="yesterday"), "'yesterday' is not an instant like 2026-10-10T00"),
        (line(at="2026-13-40T00:00:00.000Z"), "month must be in 1..12"),
        (line(event=None), "event: expected an object, found null"),
        (line(event={"type": "nap", "wall": T0, "mono": 0}), None),
        (line(event={"type": "pause", "mono": 0}), "event.wall: missing"),
        (line(event={"type": "pause", "wall": 2**52, "mono": 0}), "event.wall: the instant is out of range"),
        (line(loop=[]), "loop: expected an object, found an array"),
        (line().replace(b'"seq": 7', b'"seq": NaN'), "it is not JSON (NaN is not a JSON value)"),
        (loop_line(started_at=float("inf")), "it is not JSON (Infinity is not a JSON value)"),
        (loop_line(iteration_count=True), "loop.iteration_count: expected an integer, found true"),
        (loop_line(iteration_count=-1), "loop: a counter is negative"),
        (loop_line(started_at=T0 + 2 * MAX_MS), "loop.started_at: it lies in the future"),
        (loop_line(started_at=-1), "loop: an instant is out of range"),
        (loop_line(last_settled_at=2**52), "loop: an instant is out of range"),
        (loop_line(phase={"type": "queued", "due_at": 2**52}), "loop: an instant is out of range"),
        (loop_line(phase={"type": "failed", "ended_at": -5}), "loop: an instant is out of range"),
        (loop_line(phase={"type": "waiting"}), "loop.phase.due: missing"),
        (loop_line(policy=encode(Policy(Auto(), for_ms=0))), "loop.policy.for_ms: the duration is out of range"),
        (loop_line(policy=encode(Policy(Auto(), max_iterations=0))), "loop.policy: a limit is below its minimum"),
    ],
)  # fmt: skip
def test_damage_is_told_in_one_clause(raw: bytes, reason: str | None) -> None:
    found = decode_record(raw)
    assert isinstance(found, Damaged)
    assert "\n" not in found.reason
    if reason is not None:
        assert found.reason.startswith(reason)


@pytest.mark.parametrize("key", ["seq", "at", "event", "loop"])
def test_a_missing_key_is_damage(key: str) -> None:
    obj = json.loads(encode_record(RECORD))
    del obj[key]
    assert decode_record(json.dumps(obj).encode()) == Damaged(f"{key}: missing")


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    assert isinstance(decode_record(raw), Record | UnknownVersion | Damaged)


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(0, len(encode_record(RECORD)) - 1), st.integers(0, 255))
def test_no_single_changed_byte_raises(position: int, byte: int) -> None:
    raw = bytearray(encode_record(RECORD))
    raw[position] = byte
    assert isinstance(decode_record(bytes(raw)), Record | UnknownVersion | Damaged)


# ---- another version --------------------------------------------------------------------------------

SALVAGED = replace(LOOP, phase=Paused(PauseReason.UNKNOWN_VERSION))


@pytest.mark.parametrize("version", [2, 99, 0, -1, "2-beta"])
def test_another_version_is_kept_byte_for_byte_and_shown_paused(version: int | str) -> None:
    raw = line(v=version, new_field=[1, 2])
    assert decode_record(raw + b"\n") == UnknownVersion(version, raw, 7, SALVAGED)


def test_what_can_be_understood_of_another_version_is_shown() -> None:
    loop = {
        "id": "l9",
        "objective": 5,
        "policy": {"rhythm": {"type": "lunar"}},
        "started_at": T0,
        "phase": "odd",
        "iteration_count": 4,
        "llm_calls": "many",
    }
    found = decode_record(json.dumps({"v": 2, "seq": "x", "loop": loop}).encode())
    assert isinstance(found, UnknownVersion)
    assert (found.seq, found.loop) == (
        None,
        Loop("l9", "", Policy(Auto()), T0, Paused(PauseReason.UNKNOWN_VERSION), iteration_count=4),
    )


@pytest.mark.parametrize("extra", [{}, {"loop": 3}, {"loop": {"iteration_count": -3, "started_at": 2**52}}])
def test_nothing_understood_still_shows_a_paused_loop(extra: dict[str, Any]) -> None:
    found = decode_record(json.dumps({"v": 2, **extra}).encode())
    assert isinstance(found, UnknownVersion)
    assert found.loop == Loop("unknown", "", Policy(Auto()), 0, Paused(PauseReason.UNKNOWN_VERSION))


def test_another_version_without_a_loop_has_none() -> None:
    found = decode_record(b'{"v":2,"loop":null}')
    assert found == UnknownVersion(2, b'{"v":2,"loop":null}', None, None)


def test_a_flight_is_checked_wherever_it_is() -> None:
    decision = Decision(Verb.CONTINUE, "s", "e", None, 1, 2**52)
    flight = Flight(1, 1, PromptKind.ITERATION, Delivery.SENT, Auto(), 1, 2, T0, decision=decision)
    for phase in (Running(flight), Paused(PauseReason.DURATION_LIMIT, None, flight)):
        raw = encode_record(replace(RECORD, loop=replace(LOOP, phase=phase)))
        assert decode_record(raw) == Damaged("loop: an instant is out of range")
