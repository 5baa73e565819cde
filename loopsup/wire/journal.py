"""The journal record: one line of `journal.jsonl`, and the three things such a line can be.

The format, complete enough to write another reader. A line is one JSON object in ASCII, ended by LF:

    {"v":1,"seq":7,"at":"2026-10-10T00:00:00.000Z",
     "event":{"type":"pause","wall":1791590400000,"mono":86400000},
     "loop":{"id":…,"objective":…,"policy":{"rhythm":{"type":"fixed","every_ms":600000},…},
             "phase":{"type":"waiting","due":{"wall":…,"mono":…}},…}}

- `v`: the version of the line. `seq`: grows from line to line, gaps are allowed (numbers of damaged lines are
  not used again). `at`: when it was written, for people; the machine's time is in `event`.
- `event`: what happened. `type` is the snake_case name of a class of `loopsup.core.events`, its fields stand
  beside it. `wall` and `mono` are the two clocks (ms) the step was made with: replaying the events with these
  times through `core.step` gives the recorded states.
- `loop`: the whole state after it, null for none. `phase.type` is the state's name as people know it.
- Types are spelled as `loopsup.wire.codec` says. Integers are exact and within 2**53; NaN is not JSON.

The last line that is a record is the state. Readers skip what is damaged and say so. Within version 1 keys are
only ever added, with a default: an unknown key is ignored, a missing one takes the default. Anything else is a
new `v`, and a line with another `v` is kept byte for byte: the loop shows as paused (`unknown_version`).
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import Any

from loopsup.core.durations import MAX_MS
from loopsup.core.events import Event
from loopsup.core.model import (
    Auto,
    Completed,
    Failed,
    Flight,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Phase,
    Policy,
    Queued,
    Running,
    Stopped,
    Waiting,
)
from loopsup.wire.codec import decode, encode
from loopsup.wire.times import instant, parse_instant

VERSION = 1
MAX_INSTANT = parse_instant("9999-01-01T00:00:00.000Z")  # beyond, there is no form to show it in
MAX_SEQ = 2**52  # far from any real journal, and the numbers after it still fit
MAX_CLOCK_LEAD_MS = MAX_MS  # a start this far after its own record is not a clock set back but damage


@dataclass(frozen=True, slots=True)
class Record:
    """A transition: `loop` is the whole state after `event`, which was stepped at `now`. `at`: wall ms."""

    seq: int
    at: int
    now: Moment
    event: Event
    loop: Loop | None


@dataclass(frozen=True, slots=True)
class UnknownVersion:
    """A line of another version, `line` as it stands (without LF).

    `loop` is what could be understood of it, paused as `unknown_version`; None where it says there is none.
    """

    version: int | str
    line: bytes
    seq: int | None
    loop: Loop | None


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is no record; one clause for people."""

    reason: str


def encode_record(record: Record) -> bytes:
    """The line, ending in LF."""
    obj = {
        "v": VERSION,
        "seq": record.seq,
        "at": instant(record.at),
        "event": {**encode(record.event, Event), "wall": record.now.wall, "mono": record.now.mono},
        "loop": encode(record.loop, Loop | None),
    }
    return json.dumps(obj, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def decode_record(line: bytes) -> Record | UnknownVersion | Damaged:
    """What a line (with or without its line end) is. Raises nothing."""
    text = line.rstrip(b"\r\n")
    try:
        obj = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return Damaged("it is not UTF-8 text")
    except (ValueError, RecursionError) as error:
        return Damaged("it is empty" if not text.strip() else f"it is not JSON ({_first_clause(error)})")
    if not isinstance(obj, dict):
        return Damaged("it is not a JSON object")
    version = obj.get("v")
    if version is None or not isinstance(version, int | str) or isinstance(version, bool):
        return Damaged("it has no version")
    if version != VERSION:
        return UnknownVersion(version, text, _seq_or_none(obj), _salvage(obj.get("loop", {})))
    try:
        return _record(obj)
    except ValueError as error:
        return Damaged(str(error))


def _record(obj: dict[str, Any]) -> Record:
    seq = decode(int, _need(obj, "seq"), "seq")
    if not 0 <= seq <= MAX_SEQ:
        raise ValueError("seq: it is out of range")
    at = parse_instant(decode(str, _need(obj, "at"), "at"))
    event_obj = _need(obj, "event")
    event = decode(Event, event_obj, "event")
    now = decode(Moment, event_obj, "event")
    loop = decode(Loop | None, _need(obj, "loop"), "loop")
    if not 0 <= now.wall <= MAX_INSTANT:
        raise ValueError("event.wall: the instant is out of range")
    if loop is not None:
        _check_sense(loop, now)
    return Record(seq, at, now, event, loop)


def _check_sense(loop: Loop, now: Moment) -> None:
    """Well-typed values no loop can have: they would make a status nobody can print, or a wake that never comes."""
    policy = loop.policy
    counts = (loop.iteration_count, loop.protocol_retry_count, loop.prompts_sent, loop.llm_calls, loop.generation)
    missed = loop.last_missed
    if min(*counts, *((missed.late_ms, missed.count) if missed is not None else ())) < 0:
        raise ValueError("loop: a counter is negative")
    if policy.max_iterations < 1 or min(policy.min_delay_ms, policy.max_delay_ms) < 0:
        raise ValueError("loop.policy: a limit is below its minimum")
    if not 0 < policy.for_ms <= MAX_MS:
        raise ValueError("loop.policy.for_ms: the duration is out of range")
    if any(not 0 <= value <= MAX_INSTANT for value in _instants(loop)):
        raise ValueError("loop: an instant is out of range")
    if loop.started_at > now.wall + MAX_CLOCK_LEAD_MS:
        raise ValueError("loop.started_at: it lies in the future")


def _instants(loop: Loop) -> list[int]:
    """Every wall instant of a loop that a status or a step may use."""
    found = [loop.started_at, loop.deadline_at, *loop.expired_deadlines, *_phase_instants(loop.phase)]
    found += [value for value in (loop.last_settled_at,) if value is not None]
    found += [loop.last_decision.at] if loop.last_decision is not None else []
    found += [loop.last_missed.due_at] if loop.last_missed is not None else []
    if loop.last_attention is not None:
        found += [loop.last_attention.ended_at, loop.last_attention.observed_at]
    return found


def _phase_instants(phase: Phase) -> list[int]:
    match phase:
        case Waiting(due, held):
            return [due.wall] + ([held.until] if held is not None else [])
        case Queued(due_at, retry=retry):
            return [due_at] + ([retry.wall] if retry is not None else [])
        case Running(flight):
            return _flight_instants(flight)
        case Paused(next_due_at=next_due_at, flight=paused_flight):
            return ([next_due_at] if next_due_at is not None else []) + (
                _flight_instants(paused_flight) if paused_flight is not None else []
            )
        case Completed(ended_at) | Failed(ended_at) | Stopped(ended_at):
            return [ended_at]


def _flight_instants(flight: Flight) -> list[int]:
    retry = [flight.retry.wall] if flight.retry is not None else []
    return [flight.due_at, *retry, *([flight.decision.at] if flight.decision is not None else [])]


def _salvage(obj: object) -> Loop | None:
    """The loop of another version, field by field: what decodes is kept, the rest takes its default."""
    if obj is None:
        return None
    source = obj if isinstance(obj, dict) else {}
    values: dict[str, Any] = {
        "id": "unknown",
        "objective": "",
        "policy": Policy(Auto()),
        "started_at": 0,
    }
    probe = {**encode(Loop(phase=Paused(PauseReason.UNKNOWN_VERSION), **values), Loop)}
    for field in fields(Loop):
        if field.name == "phase" or field.name not in source:
            continue
        try:
            values[field.name] = getattr(decode(Loop, {**probe, field.name: source[field.name]}), field.name)
        except ValueError:
            if field.default is not MISSING:
                values.pop(field.name, None)
    loop = Loop(phase=Paused(PauseReason.UNKNOWN_VERSION), **values)
    try:
        _check_sense(loop, Moment(MAX_INSTANT, 0))
    except ValueError:
        return Loop(loop.id, loop.objective, Policy(Auto()), 0, loop.phase)
    return loop


def _need(obj: dict[str, Any], key: str) -> Any:
    if key not in obj:
        raise ValueError(f"{key}: missing")
    return obj[key]


def _seq_or_none(obj: dict[str, Any]) -> int | None:
    try:
        seq = decode(int, obj.get("seq"), "seq")
    except ValueError:
        return None
    return seq if 0 <= seq <= MAX_SEQ else None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")


def _first_clause(error: BaseException) -> str:
    return str(error).split(":")[0] or type(error).__name__
