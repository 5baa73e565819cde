"""What is said with the extension inside Pi: its hello, its questions to the supervisor, entries for the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from loopsup.ports import (
    AgentEvents,
    AgentUnableError,
    Boundary,
    Conversation,
    DecisionCall,
    Interruption,
    Launch,
    Marker,
    Stamp,
    ToolCall,
)
from loopsup_pi.arguments import TOOL
from loopsup_pi.link import Heard, Link, Record

SOURCE = Path(__file__).with_suffix(".ts")
MARKER_ENTRY = "loopsup"  # types of the entries in Pi's session file; extension.ts looks for the first
ATTENTION_ENTRY = "loopsup-attention"

BEHIND_S = 2.0  # stdout is read within milliseconds of the socket; nobody waits for the answer any more then

Markers = tuple[Marker | None, Marker | None]  # the newest one on the present branch, and on any


class Extension:
    """`stamp` gives the stamp of the prompt in flight; the adapter, not the model, puts it on a decision.

    `more` hears the records that are not of the extension's own business, `gone` that it is not connected any more.
    """

    def __init__(
        self,
        launch: Launch,
        events: AgentEvents,
        stamp: Callable[[], Awaitable[Stamp | None]],
        more: Heard | None = None,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._events = events
        self._more = more
        self._log = launch.log
        self._permissions = launch.permissions
        self._holds = launch.hold_tools
        self._stamp = stamp
        self._verdicts: dict[str, bool] = {}  # by tool call, until the tool's end in the stream confirms it
        self._conversation: Conversation | None = None
        self._asked: dict[int, asyncio.Task[Any]] = {}  # plans that may take hours, by the id of the record
        self._held: dict[str, asyncio.Event] = {}  # tool calls that wait for their check, until Pi's stream is there
        self.link = Link(launch.run_dir, self._heard, launch.log, gone)
        self.greeting: Record = {}  # its first hello
        self.hello: asyncio.Future[Markers] = asyncio.get_running_loop().create_future()

    def setup(self, hold_ms: int, session: str = "") -> str:
        """What the extension needs to know, once the link is open."""
        given = self._permissions
        mode = "allow" if given.allow_all else given.mode
        permissions = {"mode": mode, "allow": list(given.allow), "deny": list(given.deny)}
        return self.link.setup(permissions, session, hold_ms)

    def serves(self, conversation: Conversation) -> None:
        """What a later hello is compared with."""
        self._conversation = conversation

    async def mark(self, marker: Marker) -> None:
        data = {"v": 1, "loopId": marker.loop_id, "seq": marker.seq}
        if not await self.link.append(MARKER_ENTRY, data):
            self._log(f"the marker of state {marker.seq} could not be written into Pi's session")

    async def announce(self, event: Mapping[str, Any]) -> None:
        """An entry in the session file, which the model does not see, and a notification."""
        notice = f"loop {event.get('status')}: {event.get('summary')}"
        if not await self.link.append(ATTENTION_ENTRY, dict(event), notice):
            self._log("the attention event could not be shown inside Pi")

    def tool_ended(self, call: str, recorded: bool) -> None:
        """The tool's result in the stream must say what the supervisor said."""
        verdict = self._verdicts.pop(call, None)
        if recorded != (verdict is True):
            said = "done" if recorded else "failed"
            self._log(f"pi reports {TOOL} as {said}, the verdict was {verdict}")

    def held(self, call: str) -> None:
        """Pi's stream has come to this call."""
        self._held.setdefault(call, asyncio.Event()).set()

    async def _reached(self, call: str) -> bool:
        """A call is told on the socket, what was streamed before it on stdout: that goes first."""
        try:
            await asyncio.wait_for(self._held.setdefault(call, asyncio.Event()).wait(), BEHIND_S)
        except TimeoutError:
            return False
        finally:
            self._held.pop(call, None)
        return True

    async def _check(self, record: Record) -> Record | None:
        call = str(record.get("call"))
        if not await self._reached(call):
            return None
        given = ToolCall(call, str(record.get("tool")), record.get("arguments"))
        verdict = await self._events.tool_call(given)
        return {"allowed": verdict.allowed, "reason": verdict.reason, "ends": verdict.ends}

    async def _decide(self, call: str, arguments: object) -> Record:
        if self._holds:
            await self._reached(call)
        verdict = await self._events.decide(DecisionCall(await self._stamp(), arguments))
        self._verdicts[call] = verdict.accepted
        return {"accepted": verdict.accepted, "message": verdict.message}

    async def _heard(self, record: Record) -> Record | None:
        match record.get("type"):
            case "hello":
                self._on_hello(record)
            case "decide":
                return await self._decide(str(record.get("call")), record.get("arguments"))
            case "tool":
                return await self._check(record)
            case "interrupted":
                return await self._plan(record)
            case "dropped":
                if (asked := self._asked.get(record.get("ask", 0))) is not None:
                    asked.cancel()
            case "forking":
                await self._events.forking(str(record.get("what")))
            case "branch":
                self._events.branch(_marker(record.get("marker")))
            case _ if self._more is not None:
                return await self._more(record)
        return None

    async def _plan(self, record: Record) -> Record | None:
        turn = _interruption(record)
        task = asyncio.current_task()
        if turn is None or task is None:
            self._log("the extension told of an interrupted turn in a way that cannot be read")
            return None
        number = int(record.get("id", 0))
        self._asked[number] = task
        try:
            plan = await self._events.interrupted(turn)
        finally:
            del self._asked[number]
        return {
            "omit": plan.omit,
            "resume": plan.resume,
            "end": plan.end,
            "kind": plan.kind,
            "attempt": plan.attempt,
            "waitMs": plan.wait_ms,
        }

    def _on_hello(self, record: Record) -> None:
        if not self.hello.done():
            self.greeting = record
            if record.get("tool") is True:
                self.hello.set_result((_marker(record.get("marker")), _marker(record.get("newest"))))
            else:
                words = f"pi runs without the tool {TOOL}, which its arguments or settings leave out"
                self.hello.set_exception(AgentUnableError(words))
            return
        now = conversation(record)
        if self._conversation is not None and now.id != self._conversation.id:
            self._conversation = now
            self._events.moved(now)


def conversation(hello: Record) -> Conversation:
    """The one the extension said hello for."""
    file = hello.get("file")
    return Conversation(str(hello.get("sessionId")), Path(file) if file else None, Path(str(hello.get("cwd"))))


def _interruption(record: Record) -> Interruption | None:
    """The turn the extension asks about; None if it is malformed."""
    flags = {name: record.get(name) for name in ("substance", "natural", "runnable", "overflow")}
    tail = record.get("tail")
    if not isinstance(tail, list) or not all(isinstance(flag, bool) for flag in flags.values()):
        return None
    return Interruption(
        boundary=Boundary.TURN if record.get("boundary") == Boundary.TURN else Boundary.SETTLE,
        stop=str(record.get("stop")),
        error=str(record.get("error")),
        provider=str(record.get("provider")),
        tail=tuple(map(str, tail)),
        **{name: flag is True for name, flag in flags.items()},
    )


def _marker(raw: object) -> Marker | None:
    """A marker from the extension; a malformed one is none."""
    if isinstance(raw, dict) and isinstance(raw.get("loopId"), str) and isinstance(raw.get("seq"), int):
        return Marker(raw["loopId"], raw["seq"])
    return None
