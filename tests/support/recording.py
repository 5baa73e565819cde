"""An `AgentEvents` that writes everything down, and waits for it without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loopsup.ports import (
    Conversation,
    DecisionCall,
    Doing,
    Interruption,
    Marker,
    Plan,
    Question,
    ToolCall,
    ToolVerdict,
    Verdict,
)

WAIT_S = 60.0


async def accept(_: DecisionCall) -> Verdict:
    return Verdict(True, "recorded")


async def leave(_: Interruption) -> Plan:
    return Plan()


async def let(_: ToolCall) -> ToolVerdict:
    return ToolVerdict()


class Recording:
    """`calls` has (name, value) in order; `answers` gives the verdicts, `plans` the plans (recovery is off), `checks`
    the verdicts on tool calls."""

    checks: Callable[[ToolCall], Awaitable[ToolVerdict]] = staticmethod(let)
    plans: Callable[[Interruption], Awaitable[Plan]] = staticmethod(leave)

    def __init__(self, answers: Callable[[DecisionCall], Awaitable[Verdict]] = accept) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers = answers
        self._changed = asyncio.Event()

    def _add(self, name: str, value: Any) -> None:
        self.calls.append((name, value))
        self._changed.set()

    async def until(self, name: str, count: int = 1) -> Any:
        """The `count`th value of `name`, as soon as it is there."""
        return await self.until_found(lambda: self.all(name)[count - 1 : count], name)

    async def until_event(self, kind: str, count: int = 1) -> Any:
        """The data of the `count`th event of this kind."""
        return await self.until_found(lambda: self.events(kind)[count - 1 : count], kind)

    async def until_found(self, find: Callable[[], list[Any]], name: str) -> Any:
        async def look() -> Any:
            while not (found := find()):
                self._changed.clear()
                await self._changed.wait()
            return found[0]

        try:
            return await asyncio.wait_for(look(), WAIT_S)
        except TimeoutError:
            raise AssertionError(f"no {name} within {WAIT_S} s; so far: {self.calls}") from None

    def all(self, name: str) -> list[Any]:
        return [value for called, value in self.calls if called == name]

    def events(self, kind: str) -> list[Any]:
        return [data for type_, data in self.all("emit") if type_ == kind]

    def names(self) -> list[str]:
        """The kinds of the stored events and the calls, without what only streams."""
        out = []
        for name, value in self.calls:
            if name == "emit":
                out.append(value[0])
            elif name not in ("doing", "decide", "interrupted", "tool_call"):
                out.append(name)
        return [name for name in out if not name.endswith("_delta")]

    # ---- AgentEvents ------------------------------------------------------------------------------

    def emit(self, kind: str, data: Mapping[str, Any], *, agent_id: str | None = None) -> None:
        if agent_id is None:
            self._add("emit", (kind, dict(data)))
        else:
            self._add("emit_of", (agent_id, kind, dict(data)))

    def doing(self, what: Doing) -> None:
        self._add("doing", what)

    def settled(self, *, aborted: bool) -> None:
        self._add("settled", aborted)

    def busy(self) -> None:
        self._add("busy", None)

    async def decide(self, call: DecisionCall) -> Verdict:
        self._add("decide", call)
        return await self.answers(call)

    async def tool_call(self, call: ToolCall) -> ToolVerdict:
        self._add("tool_call", call)
        return await self.checks(call)

    async def interrupted(self, turn: Interruption) -> Plan:
        self._add("interrupted", turn)
        return await self.plans(turn)

    def ask(self, question: Question) -> None:
        self._add("ask", question)

    def ask_over(self, question_id: str, outcome: str) -> None:
        self._add("ask_over", (question_id, outcome))

    async def forking(self, what: str) -> None:
        self._add("forking", what)

    def branch(self, marker: Marker | None) -> None:
        self._add("branch", marker)

    def moved(self, conversation: Conversation) -> None:
        self._add("moved", conversation)

    def lost(self, reason: str) -> None:
        self._add("lost", reason)
