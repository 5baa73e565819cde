"""Pi's stream of records, one by one, into the event vocabulary: a pure state machine.

Rules: no I/O, no clock; a record of an unknown or malformed shape changes nothing. One turn pair is one
request to the model. Pi's own `turn_start` also opens turns without a request (after an abort), so a turn
starts at the extension's mark, or where the message itself proves that the model was asked.
`agent_settled` is the only end of a run: after `agent_end` may come a retry, a compaction, a continuation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.ports import Doing
from loopsup.wire import events as ev
from loopsup_pi.provider_errors import classify

STATUS_KEY = "loopsup"  # of the marks the extension puts into the stream
REQUEST_MARK = "request"
DECISION_MARK = "decision"
TURN_END_MARK = "turn_end"  # before a wait; Pi's own record of it comes after
TOOL_MARK = "tool:"  # and the id of a call that waits for its check

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event of the vocabulary."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Now:
    """What Pi is busy with from here on."""

    doing: Doing


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Pi works: a prompt of ours or something of its own."""


@dataclass(frozen=True, slots=True)
class RunSettled:
    """Nothing automatic is left. `aborted`: ended from outside, not by a decision."""

    aborted: bool


@dataclass(frozen=True, slots=True)
class ToolHeld:
    """All that was streamed before this call has been told."""

    call: str


Output = Emit | Now | RunStarted | RunSettled | ToolHeld

_DELTAS = {
    "text_delta": ev.MESSAGE_DELTA,
    "thinking_delta": ev.REASONING_DELTA,
    "toolcall_delta": ev.TOOL_CALL_DELTA,
}


class Translator:
    """Feed it every record; it gives what to tell, in order."""

    def __init__(self) -> None:
        self._turns = 0
        self._turn: str | None = None  # the open turn pair
        self._ended: dict[str, Any] | None = None  # what its turn_end will say
        self._tools: dict[str, str] = {}  # those under way: id and name
        self._calls: dict[str, dict[str, str]] = {}  # those being streamed, by their place in the message
        self._running = False
        self._decided = False
        self._failure: dict[str, Any] | None = None  # the error the run ended with, so far
        self._doing = Doing.NOTHING

    @property
    def running(self) -> bool:
        """Between the start of a run and its settlement."""
        return self._running

    def feed(self, record: Record) -> list[Output]:
        """What this record means."""
        handler = _HANDLERS.get(str(record.get("type")))
        return [] if handler is None else handler(self, record)

    def _now(self, doing: Doing) -> list[Output]:
        """Told once."""
        if doing is self._doing:
            return []
        self._doing = doing
        return [Now(doing)]

    def _agent_start(self, _: Record) -> list[Output]:
        if self._running:
            return []  # a retry or a continuation of the same run
        self._running = True
        return [RunStarted()]

    def _mark(self, record: Record) -> list[Output]:
        if record.get("statusKey") != STATUS_KEY:
            return []
        if record.get("statusText") == DECISION_MARK:
            self._decided = True
            return [Emit(ev.ABORT, {"reason": "decision"})]
        if record.get("statusText") == TURN_END_MARK:
            return self._turn_end(record)
        if (held := str(record.get("statusText"))).startswith(TOOL_MARK):
            return [ToolHeld(held.removeprefix(TOOL_MARK))]
        if record.get("statusText") == REQUEST_MARK and self._running:
            return [*self._open_turn(), *self._now(Doing.MODEL)]
        return []

    def _open_turn(self) -> list[Output]:
        if self._turn is not None:
            return []
        self._turn = str(self._turns)
        self._turns += 1
        return [Emit(ev.TURN_START, {"turnId": self._turn})]

    def _message_start(self, record: Record) -> list[Output]:
        message = _object(record.get("message"))
        if message.get("role") != "assistant" or message.get("stopReason") != "pending":
            return []
        self._calls.clear()
        return [*self._open_turn(), *self._now(Doing.MODEL)]

    def _message_update(self, record: Record) -> list[Output]:
        update = _object(record.get("assistantMessageEvent"))
        if update.get("type") == "toolcall_start":
            call = {"toolCallId": str(update.get("id")), "toolName": str(update.get("toolName"))}
            self._calls[_key(update)] = call
        kind = _DELTAS.get(str(update.get("type")))
        if kind is None or not update.get("delta"):
            return []
        of = self._calls.get(_key(update), {}) if kind == ev.TOOL_CALL_DELTA else {}
        return [Emit(kind, {"text": str(update["delta"]), **of})]

    def _message_end(self, record: Record) -> list[Output]:
        message = _object(record.get("message"))
        if message.get("role") != "assistant":
            return []
        content = _objects(message.get("content"))
        stop = _STOP.get(str(message.get("stopReason")), "stop")
        self._failure = None
        if self._turn is None and stop == "aborted" and not content:
            return []  # the empty turn Pi adds after an abort: the model was not asked
        out = self._open_turn()
        self._ended = {"turnId": self._turn, "stopReason": stop}
        if stop == "error":
            self._failure = classify(str(message.get("errorMessage") or "the request failed"))
            self._ended["error"] = self._failure
        if (usage := _usage(message.get("usage"))) is not None:
            self._ended["usage"] = usage
        if content:
            out.append(Emit(ev.ASSISTANT_MESSAGE, self._message(content)))
        return [*out, *self._now(Doing.NOTHING)]

    def _message(self, content: list[Mapping[str, Any]]) -> dict[str, Any]:
        text = "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
        requests = [
            {"toolCallId": part.get("id"), "toolName": part.get("name"), "arguments": part.get("arguments")}
            for part in content
            if part.get("type") == "toolCall"
        ]
        return {"turnId": self._turn, "text": text, "toolRequests": requests}

    def _turn_end(self, _: Record) -> list[Output]:
        if self._turn is None or self._ended is None:
            return []
        ended, self._turn, self._ended = self._ended, None, None
        return [Emit(ev.TURN_END, ended)]

    def _tool_start(self, record: Record) -> list[Output]:
        identity, name = str(record.get("toolCallId")), str(record.get("toolName"))
        self._tools[identity] = name
        data = {"toolCallId": identity, "toolName": name, "arguments": _bounded_arguments(record.get("args"))}
        return [*self._now(Doing.TOOL), Emit(ev.TOOL_START, data)]

    def _tool_end(self, record: Record) -> list[Output]:
        failed = bool(record.get("isError"))
        self._tools.pop(str(record.get("toolCallId")), None)
        data = {
            "toolCallId": str(record.get("toolCallId")),
            "toolName": str(record.get("toolName")),
            "success": not failed,
            "error" if failed else "result": ev.bounded(_result_text(record.get("result"))),
        }
        return [Emit(ev.TOOL_COMPLETE, data)]

    def _retry_start(self, _: Record) -> list[Output]:
        return self._now(Doing.BACKOFF)

    def _compaction_start(self, _: Record) -> list[Output]:
        return self._now(Doing.COMPACTION)

    def _compaction_end(self, record: Record) -> list[Output]:
        done: list[Output] = [Emit(ev.SESSION_COMPACTION, {})] if record.get("result") else []
        return [*done, *self._now(Doing.NOTHING)]

    def _settled(self, record: Record) -> list[Output]:
        out = self._close("it did not end")
        if self._failure is not None:
            out.append(Emit(ev.SESSION_ERROR, self._failure))
        aborted = record.get("aborted") is True and not self._decided
        self._failure = None
        self._running = self._decided = False
        return [*out, *self._now(Doing.NOTHING), RunSettled(aborted)]

    def lost(self) -> list[Output]:
        """The stream is over: what was begun is closed, with what is known. There is no settlement."""
        return [*self._close("the agent ended"), *self._now(Doing.NOTHING)]

    def _close(self, why: str) -> list[Output]:
        """One end for each beginning, whatever Pi left out."""
        out: list[Output] = [
            Emit(ev.TOOL_COMPLETE, {"toolCallId": identity, "toolName": name, "success": False, "error": why})
            for identity, name in self._tools.items()
        ]
        if self._turn is not None:
            out.append(Emit(ev.TURN_END, self._ended or {"turnId": self._turn, "stopReason": "aborted"}))
        self._tools.clear()
        self._turn = self._ended = None
        return out


_HANDLERS = {
    "agent_start": Translator._agent_start,
    "extension_ui_request": Translator._mark,
    "message_start": Translator._message_start,
    "message_update": Translator._message_update,
    "message_end": Translator._message_end,
    "turn_end": Translator._turn_end,
    "tool_execution_start": Translator._tool_start,
    "tool_execution_end": Translator._tool_end,
    "auto_retry_start": Translator._retry_start,
    "compaction_start": Translator._compaction_start,
    "compaction_end": Translator._compaction_end,
    "agent_settled": Translator._settled,
}

_STOP = {"stop": "stop", "toolUse": "toolUse", "length": "length", "error": "error", "aborted": "aborted"}


def _key(update: Record) -> str:
    return str(update.get("contentIndex"))


def _usage(raw: object) -> dict[str, Any] | None:
    usage = _object(raw)
    if not usage:
        return None
    out: dict[str, Any] = {key: usage.get(key, 0) for key in ("input", "output", "cacheRead", "cacheWrite")}
    cost = _object(usage.get("cost")).get("total")
    if isinstance(cost, int | float):
        out["costUsd"] = cost
    return out


def _result_text(raw: object) -> str:
    """What the model gets to see of a tool's result."""
    parts = _objects(_object(raw).get("content"))
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type')}]" for part in parts)


def _bounded_arguments(raw: object) -> object:
    """As they are, or their bounded JSON text where they are large (a file to be written)."""
    text = json.dumps(raw, ensure_ascii=False)
    return raw if len(text) <= ev.MAX_PAYLOAD_TEXT else ev.bounded(text)


def _object(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _objects(raw: object) -> list[Mapping[str, Any]]:
    return [_object(part) for part in raw] if isinstance(raw, list) else []
