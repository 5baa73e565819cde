"""Drives the demo agent's process: its messages become calls of `AgentEvents`, in the order they come."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from loopsup.ports import (
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    AgentUnableError,
    Conversation,
    DecisionCall,
    Doing,
    Handover,
    Launch,
    Marker,
    Origin,
    Prompt,
    Question,
    Refused,
    Stamp,
    ToolCall,
    Unknown,
)
from loopsup.process import Child
from loopsup.wire.events import ABORT, TURN_END, TURN_START
from loopsup_demo.history import NAME

# Isolated (no PYTHON* variables, not the working directory, no site-packages): an agent may have written a
# json.py there. The folder of this package comes last, after the standard library.
BOOT = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module('loopsup_demo.agent', run_name='__main__')"
)
ROOT = Path(__file__).resolve().parent.parent
LAST_WORDS = 500  # characters of standard error quoted when the process ends


def no_command(command: str) -> str:
    """The demo agent runs on the Python that runs loopsup: a configured command can only be a mistake."""
    return f"the demo agent has no command of its own; remove '{command}' from [agents.demo] in the configuration"


class DemoAgent:
    """See `loopsup.ports.Agent`."""

    def __init__(self, launch: Launch, events: AgentEvents) -> None:
        self._launch = launch
        self._events = events
        self._child: Child | None = None
        self._ready: asyncio.Future[None] | None = None
        self._handover: asyncio.Future[Handover] | None = None
        self._handed = ""
        self._stamp: Stamp | None = None
        self._working = False
        self._aborting = False
        self._closing = False
        self._open_turn: str | None = None
        self._last_words = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child is not None and child.returncode is None else None

    async def start(self) -> AgentStarted:
        launch = self._launch
        if launch.command is not None:
            raise AgentUnableError(no_command(launch.command))
        resume = launch.resume
        conversation = resume or Conversation(launch.session_id, None, launch.cwd)
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._child = await Child.spawn(
                [sys.executable, "-I", "-S", "-c", BOOT, str(ROOT)],
                cwd=launch.cwd,
                env=launch.env,
                on_line=self._heard,
                on_stderr=self._complained,
            )
        except OSError as error:
            raise AgentUnableError(f"the demo agent cannot be started: {error}") from error
        self._keep(self._watch(self._child))
        await self._send(
            {
                "do": "open",
                "id": conversation.id,
                "resume": resume is not None,
                "history": str(launch.state_dir / NAME),
                "args": list(launch.args),
                "hold": launch.hold_tools,
            }
        )
        await self._ready
        return AgentStarted(conversation)

    async def prompt(self, prompt: Prompt) -> Handover:
        if self.pid is None:
            return Refused("the demo agent does not run")
        if self._working or self._handover is not None:
            return Refused("the demo agent is working", busy=True)
        self._handover = asyncio.get_running_loop().create_future()
        self._handed = prompt.message_id
        self._stamp = prompt.stamp  # before the agent can call: its call may come right behind the acceptance
        loop = prompt.origin in (Origin.LOOP, Origin.PROTOCOL) or prompt.stamp is not None
        try:
            await self._send({"do": "prompt", "id": prompt.message_id, "text": prompt.text, "loop": loop})
            return await self._handover
        finally:
            self._handover = None

    async def abort(self, reason: AbortReason) -> None:
        if not self._working or self._aborting:
            return
        self._aborting = True
        self._events.emit(ABORT, {"reason": reason.value})
        await self._send({"do": "abort"})

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        await self._send({"do": "answer", "id": question_id, "allow": allow, "text": text})

    async def mark(self, marker: Marker) -> None:
        raise AgentUnableError("the demo agent's conversations have no branches")

    async def announce(self, event: Mapping[str, Any]) -> None:
        """The demo agent has no screen of its own."""

    async def close(self) -> None:
        self._closing = True
        if self._child is not None:
            await self._child.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, message: Mapping[str, Any]) -> None:
        """What cannot be sent any more does not matter: `lost` follows, and answers whoever waits."""
        assert self._child is not None
        try:
            await self._child.send(json.dumps(message, ensure_ascii=True).encode("ascii") + b"\n")
        except ConnectionError as error:
            self._launch.log(f"demo: {message['do']} not sent: {error}")

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _complained(self, line: str) -> None:
        if line.strip():
            self._last_words = line.strip()[:LAST_WORDS]
            self._launch.log(f"demo: {self._last_words}")

    def _heard(self, line: bytes) -> None:
        if self._closing:
            return
        try:
            message = json.loads(line)
        except ValueError:  # half a line of a process that was killed
            self._launch.log(f"demo: unreadable line of {len(line)} bytes")
            return
        match message["is"]:
            case "ready" if self._ready is not None and not self._ready.done():
                self._ready.set_result(None)
            case "accepted":
                self._working, self._aborting = True, False
                self._hand_over(message["id"], Accepted())
            case "refused":
                self._stamp = None
                self._hand_over(message["id"], Refused(message["reason"], message["busy"]))
            case _:
                self._tell(message)

    def _tell(self, message: Mapping[str, Any]) -> None:
        events = self._events
        match message["is"]:
            case "event":
                self._emit(message["type"], message["data"])
            case "doing":
                events.doing(Doing(message["what"]))
            case "call":
                self._keep(self._decide(message["id"], DecisionCall(self._stamp, message["arguments"])))
            case "check":
                self._keep(self._check(message))
            case "ask":
                events.ask(Question(message["id"], message["kind"], message["tool"], message["text"]))
            case "ask_over":
                events.ask_over(message["id"], "cancelled")
            case "busy":
                self._working, self._aborting = True, False
                events.busy()
            case "settled":
                self._stamp, self._working, self._aborting = None, False, False
                events.doing(Doing.NOTHING)
                events.settled(aborted=message["aborted"])

    def _emit(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == TURN_START:
            self._open_turn = data["turnId"]
        elif kind == TURN_END:
            self._open_turn = None
        self._events.emit(kind, data)

    def _hand_over(self, message_id: str, outcome: Handover) -> None:
        if self._handover is not None and not self._handover.done() and message_id == self._handed:
            self._handover.set_result(outcome)

    async def _decide(self, call_id: str, call: DecisionCall) -> None:
        verdict = await self._events.decide(call)
        await self._send({"do": "verdict", "id": call_id, "accepted": verdict.accepted, "message": verdict.message})

    async def _check(self, message: Mapping[str, Any]) -> None:
        call = ToolCall(message["id"], message["tool"], message["arguments"])
        verdict = await self._events.tool_call(call)
        await self._send({"do": "verdict", "id": call.id, "accepted": verdict.allowed, "message": verdict.reason})

    async def _watch(self, child: Child) -> None:
        """Wait for the end of the process, and say so where nobody asked for it."""
        reason = await child.wait()
        if self._last_words:
            reason = f"{reason}: {self._last_words}"
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(AgentUnableError(f"the demo agent did not come up ({reason})"))
            return
        if self._closing:
            return
        if self._open_turn is not None:  # every turn_start has its turn_end, also now
            error = {"kind": "agent_lost", "message": reason}
            self._emit(TURN_END, {"turnId": self._open_turn, "stopReason": "error", "error": error})
        if self._handover is not None and not self._handover.done():
            self._handover.set_result(Unknown(f"the demo agent ended before it answered ({reason})"))
        self._events.doing(Doing.NOTHING)
        self._events.lost(reason)
