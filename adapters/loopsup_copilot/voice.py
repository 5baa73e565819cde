"""The turns of one speaker in Copilot's stream: the root agent or a sub-agent. Pure.

One turn pair is one request to the model: Copilot's own pair covers all attempts of a request that is
repeated, so a turn opens at `model.call_start` and an attempt that failed is a turn that ended with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.wire import events as ev
from loopsup_copilot.shapes import as_object, as_objects, bounded_arguments, classify, usage_of

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event of the vocabulary."""

    kind: str
    data: Mapping[str, Any]
    agent_id: str | None = None


class Voice:
    """Hears the events of its speaker. `turn`: the id of the open turn pair."""

    def __init__(self, agent_id: str | None) -> None:
        self.turn: str | None = None
        self._agent_id = agent_id
        self._turns = 0
        self._tools: dict[str, str] = {}  # those under way: id and name
        self._begin()

    def _begin(self) -> None:
        self._said = self._asked_tools = False
        self._partial = ""  # what was streamed of the present answer
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._failure: dict[str, Any] | None = None

    def hear(self, kind: str, data: Record) -> list[Emit]:
        """What this event means; nothing where it is of no kind known here."""
        handler = HEARD.get(kind)
        return [] if handler is None else handler(self, data)

    def end(self, *, aborted: bool = False) -> list[Emit]:
        """Close what is open, tools first."""
        why = "the response was aborted" if aborted else "it did not end"
        out = [one for identity in list(self._tools) for one in self._tool_over(identity, False, why)]
        if self.turn is None:
            return out
        stop = self._stop_reason(aborted)
        if stop == "length" and not self._said:
            out += self._message_of(self._partial, [])  # Copilot keeps it and asks for more, without a word
        data: dict[str, Any] = {"turnId": self.turn, "stopReason": stop}
        if stop == "error":
            data["error"] = self._failure
        if self._usage is not None:
            data["usage"] = self._usage
        self.turn = None
        return [*out, self._emit(ev.TURN_END, data)]

    def _stop_reason(self, aborted: bool) -> str:
        if self._failure is not None:
            return "error"
        if aborted:
            return "aborted"
        if self._finish == "length":
            return "length"
        return "toolUse" if self._asked_tools else "stop"

    def _emit(self, kind: str, data: Record) -> Emit:
        return Emit(kind, data, self._agent_id)

    def _call_start(self, _: Record) -> list[Emit]:
        out = self.end()
        self.turn = str(self._turns)
        self._turns += 1
        self._begin()
        return [*out, self._emit(ev.TURN_START, {"turnId": self.turn})]

    def _call_failure(self, data: Record) -> list[Emit]:
        self._failure = classify("", str(data.get("errorMessage") or ""), data.get("statusCode"))
        return []

    def _usage_told(self, data: Record) -> list[Emit]:
        self._usage, self._failure = usage_of(data), None
        self._finish = str(data.get("finishReason"))
        return []

    def _message_delta(self, data: Record) -> list[Emit]:
        text = str(data.get("deltaContent") or "")
        self._partial += text
        return [self._emit(ev.MESSAGE_DELTA, {"text": text})] if text else []

    def _reasoning_delta(self, data: Record) -> list[Emit]:
        text = str(data.get("deltaContent") or "")
        return [self._emit(ev.REASONING_DELTA, {"text": text})] if text else []

    def _tool_call_delta(self, data: Record) -> list[Emit]:
        text = str(data.get("inputDelta") or "")
        told = {key: str(data[key]) for key in ("toolCallId", "toolName") if data.get(key)}
        return [self._emit(ev.TOOL_CALL_DELTA, {"text": text, **told})] if text else []

    def _message(self, data: Record) -> list[Emit]:
        requests = [
            {
                "toolCallId": str(request.get("toolCallId")),
                "toolName": str(request.get("name")),
                "arguments": bounded_arguments(request.get("arguments")),
            }
            for request in as_objects(data.get("toolRequests"))
        ]
        return self._message_of(str(data.get("content") or ""), requests)

    def _message_of(self, text: str, requests: list[dict[str, Any]]) -> list[Emit]:
        if self.turn is None:
            return []  # Copilot's own, about a background shell: the model said nothing
        self._said = True
        self._asked_tools = self._asked_tools or bool(requests)
        data = {"turnId": self.turn, "text": text, "toolRequests": requests}
        return [self._emit(ev.ASSISTANT_MESSAGE, data)]

    def _tool_start(self, data: Record) -> list[Emit]:
        if self.turn is None:
            return []
        identity, name = str(data.get("toolCallId")), str(data.get("toolName"))
        self._tools[identity] = name
        told = {"toolCallId": identity, "toolName": name, "arguments": bounded_arguments(data.get("arguments"))}
        return [self._emit(ev.TOOL_START, told)]

    def _tool_complete(self, data: Record) -> list[Emit]:
        success = data.get("success") is True
        text = (
            as_object(data.get("result")).get("content") if success else as_object(data.get("error")).get("message")
        )
        return self._tool_over(str(data.get("toolCallId")), success, str(text or ""))

    def _tool_over(self, identity: str, success: bool, text: str) -> list[Emit]:
        name = self._tools.pop(identity, None)
        if name is None:
            return []
        told = {"result" if success else "error": ev.bounded(text)}
        return [self._emit(ev.TOOL_COMPLETE, {"toolCallId": identity, "toolName": name, "success": success, **told})]

    def _error(self, data: Record) -> list[Emit]:
        words = str(data.get("message") or "")
        return [
            self._emit(ev.SESSION_ERROR, classify(str(data.get("errorType") or ""), words, data.get("statusCode")))
        ]


HEARD = {
    "model.call_start": Voice._call_start,
    "model.call_failure": Voice._call_failure,
    "assistant.usage": Voice._usage_told,
    "assistant.message_delta": Voice._message_delta,
    "assistant.reasoning_delta": Voice._reasoning_delta,
    "assistant.tool_call_delta": Voice._tool_call_delta,
    "assistant.message": Voice._message,
    "tool.execution_start": Voice._tool_start,
    "tool.execution_complete": Voice._tool_complete,
    "session.error": Voice._error,
}
