"""One run of the agent: turns with their text, tools and decisions, told to the adapter as they happen.

Every `assistant.turn_start` gets its `assistant.turn_end` after the last of its tools, also when the run is
cancelled half-way. Standard library only; the adapter's protocol is described in `loopsup_demo.agent`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from loopsup_demo.history import History

LOOP_CONTROL = "loop_control"

Send = Callable[[Mapping[str, Any]], None]
Waiting = dict[str, asyncio.Future[Mapping[str, Any]]]
Result = tuple[bool, str]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of one response."""

    tool: str
    arguments: object
    run: Callable[[], Awaitable[Result]]


class Run:
    """From the acceptance of a prompt (or a start by itself) to settlement."""

    def __init__(self, name: str, send: Send, history: History, waiting: Waiting, hold: bool) -> None:
        self.name = name
        self.send = send
        self.history = history
        self.open = True
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        self._waiting = waiting
        self._hold = hold
        self._count = 0

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        self.send({"is": "event", "type": kind, "data": data})

    def doing(self, what: str) -> None:
        self.send({"is": "doing", "what": what})

    def begin(self) -> None:
        """Start to work again without having been asked."""
        self.open = True
        self.send({"is": "busy"})

    def settle(self, *, aborted: bool = False) -> None:
        """Nothing automatic is left. Only once for each time the run was open."""
        if self.open:
            self.open = False
            self.send({"is": "settled", "aborted": aborted})

    def next_id(self, prefix: str) -> str:
        """Unique also across the processes of one conversation (`name` has the process's number)."""
        self._count += 1
        return f"{prefix}{self.name}-{self._count}"

    async def request(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send something the adapter answers (`id`), and wait for the answer."""
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = future
        try:
            self.send(message)
            return await future
        finally:
            del self._waiting[message["id"]]

    async def decide(self, arguments: object) -> Result:
        """Call `loop_control`: accepted or not, and the supervisor's words."""
        answer = await self.request({"is": "call", "id": self.next_id("d"), "arguments": arguments})
        return bool(answer["accepted"]), str(answer["message"])

    async def check(self, call: Call) -> Result:
        """Whether a tool may run."""
        if not self._hold or call.tool == LOOP_CONTROL:
            return True, ""
        asked = {"is": "check", "id": self.next_id("h"), "tool": call.tool, "arguments": call.arguments}
        answer = await self.request(asked)
        return bool(answer["accepted"]), str(answer["message"])

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """One pretended LLM call and its tools."""
        turn = Turn(self, self.next_id("t"))
        self.event("assistant.turn_start", {"turnId": turn.id})
        self.doing("model")
        try:
            if self.before_answer is not None:
                wait, self.before_answer = self.before_answer, None
                await wait()
            yield turn
            turn.finish()
        except asyncio.CancelledError:
            turn.interrupted()
            self.event("assistant.turn_end", {"turnId": turn.id, "stopReason": "aborted"})
            raise
        self.event("assistant.turn_end", {"turnId": turn.id, "stopReason": turn.stop, **turn.end})


@dataclass
class Turn:
    """One turn under way. `stop` and `end` are what its end will say."""

    run: Run
    id: str
    stop: str = "stop"
    end: dict[str, Any] = field(default_factory=dict)
    said: str = ""
    _finished: bool = False
    _open_tool: str | None = None

    def say(self, text: str) -> None:
        """Stream text, word by word."""
        self.said += text
        for piece in re.findall(r"\s*\S+\s*|\s+", text):
            self.run.event("assistant.message_delta", {"text": piece})

    def finish(self, requests: list[dict[str, Any]] | None = None) -> None:
        """The response is complete: say it as a whole."""
        if self._finished:
            return
        self._finished = True
        self.run.history.append("assistant", text=self.said)
        data = {"turnId": self.id, "text": self.said, "toolRequests": requests or []}
        self.run.event("assistant.message", data)

    async def use(self, *calls: Call) -> list[Result]:
        """End the response with these tool calls and carry them out in their order."""
        ids = [self.run.next_id("c") for _ in calls]
        self.stop = "toolUse"
        self.finish(
            [
                {"toolCallId": call_id, "toolName": call.tool, "arguments": call.arguments}
                for call_id, call in zip(ids, calls, strict=True)
            ]
        )
        return [await self._tool(call_id, call) for call_id, call in zip(ids, calls, strict=True)]

    async def _tool(self, call_id: str, call: Call) -> Result:
        start = {"toolCallId": call_id, "toolName": call.tool, "arguments": call.arguments}
        self.run.event("tool.execution_start", start)
        self.run.doing("tool")
        self._open_tool = call_id
        ok, text = await self.run.check(call)
        if ok:
            ok, text = await call.run()
        self._open_tool = None
        self.run.history.append("tool", tool=call.tool, text=text)
        outcome = {"success": ok, "result" if ok else "error": text}
        self.run.event("tool.execution_complete", {"toolCallId": call_id, "toolName": call.tool, **outcome})
        return ok, text

    def interrupted(self) -> None:
        """Close what is open before the turn ends as aborted."""
        if self._open_tool is not None:
            data = {"toolCallId": self._open_tool, "success": False, "error": "aborted"}
            self.run.event("tool.execution_complete", data)
        self.finish()
