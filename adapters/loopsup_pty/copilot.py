"""What the Copilot CLI writes into the `events.jsonl` of its session while its terminal interface runs.

Persisted are turns, messages, tools and permissions, within milliseconds; what is not (its being idle) follows: a
turn that ended with no tool asked for is the last one, and so is an error, or an abort. The file appears with the
first message. Events of sub-agents decide nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopsup.ports import AgentEvents, Doing
from loopsup.wire import events as ev
from loopsup.wire.jsonl import LineSplitter

MAX_LINE = 64 * 1024 * 1024  # a tool's whole result is one line
READ_AT_ONCE = 4 * 1024 * 1024  # the rest at the next look
OVER = frozenset({"abort", "session.error", "session.shutdown"})


def log_file(env: Mapping[str, str], session: str) -> Path:
    """Where the session's events are."""
    home = env.get("COPILOT_HOME")
    base = Path(home) if home else Path(env.get("HOME") or Path.home()) / ".copilot"
    return base / "session-state" / session / "events.jsonl"


class CopilotVoice:
    """See `loopsup_pty.voices.Voice`. What happened before it was made is not told."""

    def __init__(self, file: Path, events: AgentEvents) -> None:
        self._file = file
        self._events = events
        self._offset = file.stat().st_size if file.exists() else 0
        self._splitter = LineSplitter(MAX_LINE)
        self._waiting: list[Mapping[str, Any]] = []
        self._messages = self._marked = 0
        self._works = self._last = self._asked = False
        self._questions: dict[str, str] = {}
        self._speaking = False
        self._turns = 0
        self._turn: str | None = None
        self._tools: dict[str, str] = {}
        self._error: dict[str, Any] | None = None

    def poll(self) -> None:
        for line in self._splitter.feed(self._read()):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("data"), dict) and not record.get("agentId"):
                self._state(str(record.get("type")), record["data"])
                self._waiting.append(record)
        if self._speaking:
            self._flush()

    def mark(self) -> None:
        self.poll()
        self._marked = self._messages

    def took(self) -> bool | None:
        self.poll()
        return self._messages > self._marked

    def works(self) -> bool:
        return self._works

    def doing(self) -> Doing:
        return Doing.TOOL if self._tools else Doing.MODEL

    def asks(self) -> str | None:
        return next(iter(self._questions.values()), None)

    def begin(self) -> None:
        self._speaking = True
        self._error = None
        self._events.doing(Doing.MODEL)
        self._flush()

    def end(self, reason: str, error: Mapping[str, Any] | None) -> None:
        self.poll()
        if self._turn is not None:
            self._close(reason, error)
        self._events.doing(Doing.NOTHING)
        self._speaking = False
        self._works = False
        self._questions.clear()

    # ---- the file ---------------------------------------------------------------------------------

    def _read(self) -> bytes:
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                data = file.read(READ_AT_ONCE)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def _state(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "user.message":
            self._messages += 1
            self._works = True
        elif kind == "assistant.turn_start":
            self._works, self._last = True, False
        elif kind == "assistant.message":
            self._last = not data.get("toolRequests")
        elif kind == "assistant.turn_end":
            self._works = not self._last
        elif kind in OVER:
            self._works = False
            self._questions.clear()
        elif kind == "permission.requested":
            self._questions[str(data.get("requestId"))] = _question(data.get("permissionRequest"))
        elif kind == "permission.completed":
            self._questions.pop(str(data.get("requestId")), None)

    # ---- what is told -----------------------------------------------------------------------------

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._tell(str(record["type"]), record["data"])

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "assistant.turn_start":
            self._open()
        elif kind == "assistant.message":
            self._say(data)
        elif kind == "tool.execution_start":
            self._tool(data)
        elif kind == "tool.execution_complete":
            self._result(data)
        elif kind == "assistant.turn_end" and self._turn is not None:
            self._close("toolUse" if self._asked else "stop", None)
        elif kind == "session.error":
            message = ev.bounded(str(data.get("message")))
            self._events.emit(ev.SESSION_ERROR, {"kind": "agent", "message": message})

    def _open(self) -> None:
        if self._turn is not None:
            self._close("stop", None)
        self._turns += 1
        self._asked = False
        self._turn = f"{self._offset}-{self._turns}"
        self._events.emit(ev.TURN_START, {"turnId": self._turn})
        self._events.doing(Doing.MODEL)

    def _say(self, data: Mapping[str, Any]) -> None:
        if self._turn is None or data.get("parentToolCallId"):
            return
        asked = data.get("toolRequests")
        requests = [
            {
                "toolCallId": str(one.get("toolCallId")),
                "toolName": str(one.get("name")),
                "arguments": _bounded(one.get("arguments")),
            }
            for one in (asked if isinstance(asked, list) else [])
            if isinstance(one, dict)
        ]
        self._asked = bool(requests)
        text = str(data.get("content") or "")
        self._events.emit(ev.ASSISTANT_MESSAGE, {"turnId": self._turn, "text": text, "toolRequests": requests})

    def _tool(self, data: Mapping[str, Any]) -> None:
        if self._turn is None:
            return
        identity, name = str(data.get("toolCallId")), str(data.get("toolName"))
        self._tools[identity] = name
        shown = _bounded(data.get("arguments"))
        self._events.emit(ev.TOOL_START, {"toolCallId": identity, "toolName": name, "arguments": shown})
        self._events.doing(Doing.TOOL)

    def _result(self, data: Mapping[str, Any]) -> None:
        identity = str(data.get("toolCallId"))
        if identity not in self._tools:
            return
        well = data.get("success") is True
        found = data.get("result" if well else "error")
        text = found.get("content" if well else "message") if isinstance(found, dict) else found
        self._complete(identity, well, ev.bounded(str(text or "")))

    def _complete(self, identity: str, well: bool, text: str) -> None:
        told = {"toolCallId": identity, "toolName": self._tools.pop(identity), "success": well}
        self._events.emit(ev.TOOL_COMPLETE, {**told, "result" if well else "error": text})
        if not self._tools:
            self._events.doing(Doing.MODEL)

    def _close(self, reason: str, error: Mapping[str, Any] | None) -> None:
        for identity in list(self._tools):
            self._complete(identity, False, "it did not end")
        end: dict[str, Any] = {"turnId": self._turn, "stopReason": reason}
        self._turn = None
        self._events.emit(ev.TURN_END, end if error is None else {**end, "error": dict(error)})


def _bounded(arguments: object) -> object:
    """As they are, or their bounded JSON text where they are large (a file to be written)."""
    text = json.dumps(arguments, ensure_ascii=False)
    return arguments if len(text) <= ev.MAX_PAYLOAD_TEXT else ev.bounded(text)


def _question(asked: object) -> str:
    """A permission in words."""
    if not isinstance(asked, dict):
        return "a permission"
    words = [asked.get(key) for key in ("intention", "fullCommandText", "path", "toolName", "url")]
    told = " / ".join(str(word) for word in words if word)
    return f"{asked.get('kind', 'a permission')}: {told}" if told else str(asked.get("kind", "a permission"))
