"""The event vocabulary: what `events.jsonl` stores and what followers see.

One JSON object a line: `{"v":1,"seq","at","type","data":{…}}`, optional `iteration`, `agentId` (a
sub-agent's event: never a decision, never idle). Where Copilot's session log has a name for a thing, that
name is used. `grep -c '"assistant.turn_start"'` gives the number of LLM calls, because the literal never
occurs inside payload text: its dot is escaped there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loopsup.wire.times import instant

VERSION = 1
MAX_PAYLOAD_TEXT = (
    16 * 1024
)  # characters kept of a tool's result or a hook's output: enough to read, not to fill a disk
MAX_EVENT = 8 * 1024 * 1024  # bytes of a line: an envelope with an objective of 1 MiB, escaped sixfold, fits
CUTS = (256 * 1024, MAX_PAYLOAD_TEXT)  # characters kept of each text where a line would be longer: a book, a page
MAX_FIELDS = 64  # no event has a quarter of that

SESSION_START = "session.start"
SESSION_RESUME = "session.resume"
SESSION_SHUTDOWN = "session.shutdown"
SESSION_TASK_COMPLETE = "session.task_complete"
SESSION_ERROR = "session.error"
SESSION_COMPACTION = "session.compaction"
SESSION_IDLE = "session.idle"
SESSION_HEARTBEAT = "session.heartbeat"
USER_MESSAGE = "user.message"
TURN_START = "assistant.turn_start"
TURN_END = "assistant.turn_end"
ASSISTANT_MESSAGE = "assistant.message"
MESSAGE_DELTA = "assistant.message_delta"
REASONING_DELTA = "assistant.reasoning_delta"
TOOL_CALL_DELTA = "assistant.tool_call_delta"
TOOL_START = "tool.execution_start"
TOOL_COMPLETE = "tool.execution_complete"
ABORT = "abort"
PERMISSION_REQUESTED = "permission.requested"
PERMISSION_COMPLETED = "permission.completed"
LOOP_TRANSITION = "loop.transition"
LOOP_ATTENTION = "loop.attention"
LOOP_HOOK = "loop.hook"
LOOP_MISFIRE = "loop.misfire"
LOOP_NOTICE = "loop.notice"
CONTINUITY_RECOVERY = "continuity.recovery"
TTSR_TRIGGERED = "ttsr_triggered"
TTSR_INJECTION = "ttsr_injection"

# type -> the keys its data may have; a key in parentheses in the docs ends with "?" here.
TYPES: Mapping[str, tuple[str, ...]] = {
    SESSION_START: ("agent", "agentSessionId", "file?", "cwd"),
    SESSION_RESUME: ("agent", "agentSessionId", "file?", "cwd"),
    SESSION_SHUTDOWN: ("reason",),
    USER_MESSAGE: ("messageId", "origin", "text"),
    TURN_START: ("turnId",),
    ASSISTANT_MESSAGE: ("turnId", "text", "toolRequests"),
    TURN_END: ("turnId", "stopReason", "error?", "usage?"),
    TOOL_START: ("toolCallId", "toolName", "arguments"),
    TOOL_COMPLETE: ("toolCallId", "toolName?", "success", "result?", "error?"),
    SESSION_TASK_COMPLETE: ("summary?",),
    SESSION_ERROR: ("kind", "message"),
    ABORT: ("reason",),
    PERMISSION_REQUESTED: ("id", "tool", "text"),
    PERMISSION_COMPLETED: ("id", "outcome", "by"),
    SESSION_COMPACTION: (),
    SESSION_HEARTBEAT: ("version", "kind", "at", "beat", "everyMs", "summary", "session", "loop"),
    LOOP_TRANSITION: ("from", "to", "pauseReason?", "cause"),
    LOOP_ATTENTION: ("version",),
    LOOP_HOOK: ("path", "exit?", "signal?", "timeout?", "error?", "durationMs", "stderr?"),
    LOOP_MISFIRE: ("dueAt", "missedByMs", "count", "why", "done"),
    LOOP_NOTICE: ("message",),
    CONTINUITY_RECOVERY: ("kind", "attempt", "waitMs"),
    TTSR_TRIGGERED: ("rules",),
    TTSR_INJECTION: ("rules", "partial"),
    MESSAGE_DELTA: ("text",),
    REASONING_DELTA: ("text",),
    TOOL_CALL_DELTA: ("text", "toolCallId?", "toolName?"),
    SESSION_IDLE: ("aborted?",),
}

# Live only: never on disk, never replayed, never needed after a reconnect.
EPHEMERAL = frozenset({MESSAGE_DELTA, REASONING_DELTA, TOOL_CALL_DELTA, SESSION_IDLE})

STOP_REASONS = frozenset({"stop", "toolUse", "length", "error", "aborted"})


@dataclass(frozen=True, slots=True)
class ConversationEvent:
    """One event. `at` is a wall instant in milliseconds."""

    seq: int
    at: int
    type: str
    data: Mapping[str, Any]
    iteration: int | None = None
    agent_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The object as stored and streamed."""
        out: dict[str, Any] = {"v": VERSION, "seq": self.seq, "at": instant(self.at), "type": self.type}
        if self.iteration is not None:
            out["iteration"] = self.iteration
        if self.agent_id is not None:
            out["agentId"] = self.agent_id
        out["data"] = dict(self.data)
        return out


def encode(event: ConversationEvent) -> bytes:
    """The line, ending in LF. ASCII only, so no separator a reader could trip over is inside.

    Never longer than `MAX_EVENT`: of an event that would be, only the beginning of each text is kept.
    """
    # To encode tens of megabytes only to see that they are too many would hold everybody up for seconds.
    line = _line(event) if _text_size(event.data) <= MAX_EVENT else None
    for limit in CUTS:
        if line is not None and len(line) <= MAX_EVENT:
            return line
        line = _line(replace(event, data=_cut(event.data, limit)))
    if line is None or len(line) > MAX_EVENT:  # not its texts: hundreds of thousands of small things
        line = _line(replace(event, data=_few(event.data)))
    return line


def _line(event: ConversationEvent) -> bytes:
    head = event.as_json()
    data = json.dumps(head.pop("data"), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    start = json.dumps(head, ensure_ascii=True, separators=(",", ":"))
    safe = data.replace(TURN_START, TURN_START.replace(".", "\\u002e"))
    return f'{start[:-1]},"data":{safe}}}\n'.encode("ascii")


def _text_size(value: Any) -> int:
    """The characters of all texts in it."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(map(_text_size, value.values()))
        case list() | tuple():
            return sum(map(_text_size, value))
        case _:
            return 0


def _cut(value: Any, limit: int) -> Any:
    match value:
        case str():
            return bounded(value, limit)
        case Mapping():
            return {bounded(str(key), limit): _cut(each, limit) for key, each in value.items()}
        case list() | tuple():
            return [_cut(each, limit) for each in value]
        case _:
            return value


def _few(data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of an event; what is nested is left out."""
    few = {key: _cut(value, CUTS[-1]) for key, value in list(data.items())[:MAX_FIELDS]}
    return {key: "… (left out: too large)" if isinstance(value, dict | list) else value for key, value in few.items()}


def bounded(text: str, limit: int = MAX_PAYLOAD_TEXT) -> str:
    """`text`, cut to `limit` characters with a note of how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
