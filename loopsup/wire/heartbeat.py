"""A heartbeat in the status, in its file, and as followers and the hook get it.

The report is not an attention event: it has `kind` and no `status`, so the six values of that enum stay six.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loopsup.core.durations import show
from loopsup.core.heartbeat import Heartbeat, next_beat
from loopsup.core.limits import SECOND
from loopsup.wire.codec import decode, encode
from loopsup.wire.times import instant, parse_instant

VERSION = 1
KIND = "heartbeat"
_OF_LOOP = (
    "id",
    "state",
    "pauseReason",
    "late",
    "iterationCount",
    "maxIterations",
    "nextDueAt",
    "deadlineAt",
    "deadlineRemainingMs",
    "lastDecision",
)


def status_of(heartbeat: Heartbeat | None) -> dict[str, Any] | None:
    """What `status` shows."""
    if heartbeat is None:
        return None
    due, last = next_beat(heartbeat), heartbeat.last_at
    return {
        "state": "active" if heartbeat.due is not None else "paused",
        "pauseReason": None if heartbeat.rest is None else heartbeat.rest.value,
        "everyMs": heartbeat.every_ms,
        "ask": heartbeat.ask,
        "beats": heartbeat.beats,
        "lastAt": None if last is None else instant(last),
        "nextAt": None if due is None else instant(due.wall),
        "endsAt": instant(heartbeat.ends_at),
    }


def report_of(heartbeat: Heartbeat, status: Mapping[str, Any], now: int) -> dict[str, Any]:
    """What is told at a beat: the session, and how its loop stands."""
    session, loop = status["session"], status["loop"]
    file = {} if session["file"] is None else {"file": session["file"]}
    return {
        "version": VERSION,
        "kind": KIND,
        "at": instant(now),
        "beat": heartbeat.beats,
        "everyMs": heartbeat.every_ms,
        "summary": _summary(loop, now),
        "session": {
            "id": session["agentSessionId"] or session["id"],
            **file,
            "cwd": session["cwd"],
            "name": session["name"],
            "agent": session["agent"],
        },
        "loop": None if loop is None else {key: loop[key] for key in _OF_LOOP},
    }


def _summary(loop: Mapping[str, Any] | None, now: int) -> str:
    """One line: `waiting, iteration 3 of 50, next wake in 7m; continue: the run is queued`."""
    if loop is None:
        return "no loop"
    state = loop["state"] if loop["pauseReason"] is None else f"{loop['state']} ({loop['pauseReason']})"
    text = f"{state}, iteration {loop['iterationCount']} of {loop['maxIterations']}"
    if loop["nextDueAt"] is not None:
        left = parse_instant(loop["nextDueAt"]) - now
        text += f", next wake in {show(left)}" if left >= SECOND else ", next wake due now"
    last = loop["lastDecision"]
    return text if last is None else f"{text}; {last['decision']}: {last['summary']}"


def report_bytes(report: Mapping[str, Any]) -> bytes:
    """What a hook reads on its standard input."""
    return json.dumps(report, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def encode_file(heartbeat: Heartbeat | None) -> bytes:
    """The content of `heartbeat.json`."""
    obj = {"v": VERSION, "heartbeat": encode(heartbeat, Heartbeat | None)}
    return json.dumps(obj, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def decode_file(content: bytes) -> Heartbeat | None:
    """ValueError for anything that is not of this version."""
    obj = json.loads(content)
    if not isinstance(obj, dict) or obj.get("v") != VERSION:
        raise ValueError("it was written by another version of loopsup")
    found: Heartbeat | None = decode(Heartbeat | None, obj.get("heartbeat"), "heartbeat")
    return found
