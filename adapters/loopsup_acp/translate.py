"""`session/update` notifications into the event vocabulary: a pure state machine.

Rules: no I/O, no clock; an update of an unknown or malformed shape changes nothing. ACP does not say when the
model is called, so one prompt is one turn pair. What comes outside a prompt is no event of this loop: `session/load`
replays old messages and tool calls as if they were new, some agents even after they answered it; a tool call
first seen there is never told later either. `loop_control` is a tool like any other here: only the carrier decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopsup.ports import Doing
from loopsup.wire import events as ev

MAX_TEXT = 1024 * 1024  # characters kept of one message; an agent that floods is cut, and that is said
MAX_NAME = 200  # characters of a tool's name: a title may be a whole shell command
MAX_OLD = 100_000  # ids of replayed tool calls remembered

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event of the vocabulary."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Now:
    """What the agent is busy with from here on."""

    doing: Doing


Output = Emit | Now


@dataclass(slots=True)
class Tool:
    """A tool call, as far as the agent has told it."""

    name: str = ""
    kind: str = "other"
    title: str = ""
    arguments: object = field(default_factory=dict)
    content: object = None
    output: object = None
    started: bool = False


class Translator:
    """`begin`, then every update, then `end`; over and over."""

    def __init__(self) -> None:
        self._turns = 0
        self._turn: str | None = None
        self._text: list[str] = []
        self._length = 0
        self._tools: dict[str, Tool] = {}  # under way in this turn
        self._over: set[str] = set()  # completed in this turn
        self._old: set[str] = set()  # seen outside any turn
        self._doing = Doing.NOTHING
        self._cost: float | None = None  # cumulative, as last told
        self._cost_before: float | None = None

    def expect_no_cost_yet(self) -> None:
        """A new conversation: its cost so far is known to be nothing."""
        self._cost = self._cost or 0.0

    def begin(self) -> list[Output]:
        """A prompt is before the agent."""
        self._turns += 1
        self._turn = str(self._turns)
        self._tools, self._over = {}, set()
        self._cost_before = self._cost
        return [Emit(ev.TURN_START, {"turnId": self._turn}), *self._now()]

    def feed(self, update: Record) -> list[Output]:
        """What this update means."""
        handler = _HANDLERS.get(str(update.get("sessionUpdate")))
        return [] if handler is None else handler(self, update)

    def tool(self, call: Record) -> Tool:
        """What is known of a tool call that a question is about; the call is merged in."""
        identity = str(call.get("toolCallId"))
        tool = self._tools.get(identity) or Tool()
        _merge(tool, call)
        if self._turn is not None and identity not in self._over and identity not in self._old:
            self._tools[identity] = tool
        return tool

    def end(self, reason: str, *, error: Record | None = None, usage: dict[str, Any] | None = None) -> list[Output]:
        """The prompt is answered (or the agent is gone)."""
        if self._turn is None:
            return []
        out = self._flush()
        for identity, tool in list(self._tools.items()):
            out += [*self._start(identity, tool), self._completion(identity, tool, "it ended with the turn")]
        data: dict[str, Any] = {"turnId": self._turn, "stopReason": reason}
        if error is not None:
            data["error"] = error
        figures = {**(usage or {}), **self._turn_cost()}
        if figures:
            data["usage"] = figures
        self._tools, self._turn = {}, None
        return [*out, Emit(ev.TURN_END, data), *self._now()]

    def _turn_cost(self) -> dict[str, Any]:
        """The agent tells the sum of the session; a turn costs the difference."""
        if self._cost is None or self._cost_before is None or self._cost <= self._cost_before:
            return {}
        return {"costUsd": round(self._cost - self._cost_before, 9)}

    def _now(self) -> list[Output]:
        """Told once."""
        doing = Doing.NOTHING
        if self._turn is not None:
            doing = Doing.TOOL if any(tool.started for tool in self._tools.values()) else Doing.MODEL
        if doing is self._doing:
            return []
        self._doing = doing
        return [Now(doing)]

    def _message(self, update: Record) -> list[Output]:
        text = _object(update.get("content")).get("text")
        if self._turn is None or not isinstance(text, str) or not text:
            return []
        if self._length < MAX_TEXT:
            self._text.append(text[: MAX_TEXT - self._length])
        self._length += len(text)
        return [Emit(ev.MESSAGE_DELTA, {"text": text})]

    def _thought(self, update: Record) -> list[Output]:
        text = _object(update.get("content")).get("text")
        if self._turn is None or not isinstance(text, str) or not text:
            return []
        return [Emit(ev.REASONING_DELTA, {"text": text})]

    def _flush(self) -> list[Output]:
        """The text so far is one message: something else comes after it."""
        if not self._length:
            return []
        left_out = self._length - MAX_TEXT
        text = "".join(self._text) + (f"… ({left_out} more characters)" if left_out > 0 else "")
        self._text, self._length = [], 0
        return [Emit(ev.ASSISTANT_MESSAGE, {"turnId": self._turn, "text": text, "toolRequests": []})]

    def _call(self, update: Record) -> list[Output]:
        identity = str(update.get("toolCallId"))
        if self._turn is None:
            if len(self._old) < MAX_OLD:
                self._old.add(identity)
            return []
        if identity in self._old or identity in self._over:
            return []
        out = self._flush()
        tool = self._tools.setdefault(identity, Tool())
        _merge(tool, update)
        status = update.get("status")
        if status in ("in_progress", "completed", "failed"):
            out += self._start(identity, tool)
        if status in ("completed", "failed"):
            out.append(self._completion(identity, tool, None if status == "completed" else "it failed"))
        return [*out, *self._now()]

    def _start(self, identity: str, tool: Tool) -> list[Output]:
        if tool.started:
            return []
        tool.started = True
        data = {"toolCallId": identity, "toolName": tool.name or tool.kind, "arguments": _bounded(tool.arguments)}
        return [Emit(ev.TOOL_START, data)]

    def _completion(self, identity: str, tool: Tool, fault: str | None) -> Output:
        self._tools.pop(identity, None)
        self._over.add(identity)
        text = ev.bounded(_result_text(tool))
        outcome: dict[str, Any] = {"result": text} if fault is None else {"error": text or fault}
        return Emit(
            ev.TOOL_COMPLETE,
            {"toolCallId": identity, "toolName": tool.name or tool.kind, "success": fault is None, **outcome},
        )

    def _usage(self, update: Record) -> list[Output]:
        cost = _object(update.get("cost"))
        amount = cost.get("amount")
        if cost.get("currency") == "USD" and isinstance(amount, int | float) and not isinstance(amount, bool):
            self._cost = float(amount)
        return []


_HANDLERS = {
    "agent_message_chunk": Translator._message,
    "agent_thought_chunk": Translator._thought,
    "tool_call": Translator._call,
    "tool_call_update": Translator._call,
    "usage_update": Translator._usage,
}


def _merge(tool: Tool, call: Record) -> None:
    """Later updates only say what changed."""
    tool.title = str(call.get("title") or tool.title)
    tool.kind = str(call.get("kind") or tool.kind)
    # The first title is the tool's name for most; later ones tell what it does just now.
    tool.name = (named(call) or tool.name or tool.title)[:MAX_NAME]
    if call.get("rawInput"):
        tool.arguments = call["rawInput"]
    tool.content = call.get("content") or tool.content
    if call.get("rawOutput") is not None:
        tool.output = call["rawOutput"]


def named(call: Record) -> str | None:
    """The name behind the title, where the agent gives it."""
    meta = _object(call.get("_meta"))
    name = meta.get("toolName") or _object(meta.get("claudeCode")).get("toolName")
    return name if isinstance(name, str) else None


def _result_text(tool: Tool) -> str:
    """What can be read of a tool's result."""
    parts = [_object(part) for part in tool.content] if isinstance(tool.content, list) else []
    texts = [_object(part.get("content")).get("text") for part in parts]
    found = "\n".join(text for text in texts if isinstance(text, str))
    if found or tool.output is None:
        return found
    return tool.output if isinstance(tool.output, str) else json.dumps(tool.output, ensure_ascii=False)


def _bounded(raw: object) -> object:
    """As they are, or their bounded JSON text where they are large (a file to be written)."""
    text = json.dumps(raw, ensure_ascii=False)
    return raw if len(text) <= ev.MAX_PAYLOAD_TEXT else ev.bounded(text)


def _object(raw: object) -> Record:
    return raw if isinstance(raw, Mapping) else {}
