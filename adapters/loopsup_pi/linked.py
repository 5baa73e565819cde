"""A Pi with a person in front of it, driven through its extension alone (no `--mode rpc`).

The link carries everything: prompts go in as the extension's `sendUserMessage` (the person's half-typed line is
not touched), Pi's events come out in the shape its RPC mode would give them, so that one translator reads both.
Rules: one channel, so what the extension says is in order; a prompt counts as taken when Pi has begun with it;
what the person types there is a user's message like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from loopsup.ports import (
    HOLD_S,
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    AgentUnableError,
    Handover,
    Launch,
    Marker,
    Origin,
    Prompt,
    Refused,
    Stamp,
    Unknown,
)
from loopsup.wire import events as ev
from loopsup_pi.arguments import TOOL
from loopsup_pi.extension import Extension, conversation
from loopsup_pi.link import Record
from loopsup_pi.rpc import Inbox
from loopsup_pi.translate import Emit, Now, Output, RunSettled, RunStarted, ToolHeld, Translator

START_S = 30.0  # the extension answers in milliseconds; a Pi that is brought up by `Body` takes a second or two
HANDOVER_S = 50.0  # longer than the extension's own bound
CLOSE_SETTLE_S = 5.0  # an abort settles in milliseconds
RELOAD_S = 15.0  # `/reload` reads the user's extensions again; a second or two on a slow machine


class Body(Protocol):
    """Where the Pi at the other end of the link is, and who ends it."""

    @property
    def pid(self) -> int | None:
        """Of a Pi that is ours, while it runs; None for one that is not."""
        ...

    async def bring(self, setup: str) -> None:
        """Have a Pi that loads the extension get `setup` (its environment variable LOOPSUP_PI_SETUP, or the
        invitation). AgentUnableError."""
        ...

    async def end(self) -> None:
        """End it, with its tree, if it is ours. The link has said goodbye before."""
        ...


class Guest:
    """A Pi the person started: it is invited, and left alone at the end."""

    pid = None

    def __init__(self, invite: Callable[[str], None]) -> None:
        self._invite: Callable[[str], None] | None = invite

    async def bring(self, setup: str) -> None:
        assert self._invite is not None
        self._invite(setup)

    async def end(self) -> None:
        pass


class LinkedPi:
    """See `loopsup.ports.Agent`. `body` brings the Pi; everything else happens over the link.

    A Pi that ends or goes elsewhere is reported by `left` where it is a guest. A body of one's own (a Pi in a pty of
    the supervisor's) watches its process itself and reports by `ended(reason)`, which tells `lost` once.
    """

    def __init__(self, launch: Launch, events: AgentEvents, body: Body, start_s: float = START_S) -> None:
        self._launch = launch
        self._events = events
        self._body = body
        self._start_s = start_s
        self._guest = isinstance(body, Guest)
        self._translator = Translator()
        self._inbox = Inbox(self._on_event)
        self._extension = Extension(launch, events, self._stamp_in_flight, self._heard, self._gone)
        self._offers: dict[str, tuple[Prompt, asyncio.Future[Record]]] = {}
        self._text: str | None = None  # of the prompt in flight, until Pi shows it as its user's message
        self._stamp: Stamp | None = None
        self._accepted = self._aborting = self._closing = self._over = False
        self._started = False
        self._reloading: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pid(self) -> int | None:
        return self._body.pid

    # ---- start and end ----------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        launch = self._launch
        try:
            await self._extension.link.open()
        except OSError as error:
            raise AgentUnableError(f"the socket for pi cannot be made: {error.strerror or error}") from error
        permissions = {
            "mode": "allow" if launch.permissions.allow_all else launch.permissions.mode,
            "allow": list(launch.permissions.allow),
            "deny": list(launch.permissions.deny),
        }
        session, hold_ms = launch.env.get("LOOPSUP_SESSION", ""), round(HOLD_S * 1000) if launch.hold_tools else 0
        await self._body.bring(self._extension.link.setup(permissions, session, hold_ms))
        try:
            markers = await asyncio.wait_for(asyncio.shield(self._extension.hello), self._start_s)
        except TimeoutError:
            raise AgentUnableError(f"the extension inside pi did not connect within {self._start_s:g} s") from None
        hello = self._extension.greeting
        found = conversation(hello)
        if self._guest and launch.resume is not None and found.id != launch.resume.id:
            raise AgentUnableError("pi has moved to another conversation meanwhile")
        if not self._guest:
            found = replace(found, cwd=launch.cwd)  # as it was asked for; Pi resolves links in it
        self._extension.serves(found)
        self._started = True
        peer = hello.get("pid")
        return AgentStarted(found, *markers, peer=peer if self._guest and isinstance(peer, int) else None)

    async def close(self) -> None:
        self._closing = True
        if self._extension.link.connected and not self._idle.is_set() and not self._aborting:
            await self.abort(AbortReason.SHUTDOWN)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), CLOSE_SETTLE_S)
        await self._extension.link.tell({"type": "released"})
        if self._reloading is not None:
            self._reloading.cancel()
        await self._body.end()
        await self._extension.link.close()

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if prompt.origin is Origin.TTSR:
            return await self._try_again(prompt)
        identity = uuid.uuid4().hex
        answer: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._offers[identity] = (prompt, answer)
        try:
            if not await self._extension.link.tell({"type": "prompt", "prompt": identity, "text": prompt.text}):
                return Refused("pi is not connected", busy=True)
            record = await asyncio.wait_for(answer, HANDOVER_S)
        except TimeoutError:
            return Unknown(f"pi did not answer within {HANDOVER_S:g} s")
        finally:
            self._offers.pop(identity, None)
            self._inbox.release_soon()
        if record.get("taken") is True:
            return Accepted()
        reason = str(record.get("reason"))
        return Refused(reason, busy=record.get("busy") is True) if record.get("taken") is False else Unknown(reason)

    async def _try_again(self, prompt: Prompt) -> Handover:
        """A reminder of a stream rule goes in as a message of the extension's, and Pi goes on without a user's."""
        if not self._idle.is_set():
            return Refused("pi is working", busy=True)
        self._accepted, self._stamp = True, prompt.stamp
        self._idle.clear()
        try:
            refused = await self._extension.link.retry(prompt.text, prompt.keep)
        except (TimeoutError, OSError) as error:
            return Unknown(f"the extension inside pi did not say that it had begun: {error}")
        if refused is None:
            return Accepted()
        if not self._translator.running:
            self._idle.set()
        self._accepted, self._stamp = False, None
        return Refused(refused, busy=True)

    async def abort(self, reason: AbortReason) -> None:
        if self._idle.is_set():
            return
        self._aborting = True
        self._events.emit(ev.ABORT, {"reason": reason.value})
        if not await self._extension.link.tell({"type": "end" if reason is AbortReason.TTSR else "abort"}):
            self._settle_lost()

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        """Its dialogs are answered by the person in front of it."""

    async def mark(self, marker: Marker) -> None:
        await self._extension.mark(marker)

    async def announce(self, event: Mapping[str, Any]) -> None:
        await self._extension.announce(event)

    # ---- from the extension -----------------------------------------------------------------------

    async def _heard(self, record: Record) -> Record | None:
        match record.get("type"):
            case "event":
                self._inbox.put(dict(record.get("event") or {}))
            case "taken":
                self._on_taken(record)
            case "command":
                answer = await self._events.command(str(record.get("line")))
                return {"done": answer.done, "message": answer.message, "status": answer.status}
            case "goodbye":
                self._on_goodbye(str(record.get("reason")))
        return None

    def _on_taken(self, record: Record) -> None:
        prompt, answer = self._offers.get(str(record.get("prompt")), (None, None))
        if prompt is None or answer is None or answer.done():
            return
        if record.get("taken") is True:
            self._accepted, self._stamp, self._text = True, prompt.stamp, prompt.text
            self._idle.clear()
            self._inbox.hold()
        answer.set_result(record)

    async def _stamp_in_flight(self) -> Stamp | None:
        return self._stamp

    def _on_event(self, record: Record) -> None:
        message = record.get("message")
        if record.get("type") == "message_start" and isinstance(message, dict) and message.get("role") == "user":
            self._on_user(str(message.get("text")))
            return
        if record.get("type") == "tool_execution_end" and record.get("toolName") == TOOL:
            self._extension.tool_ended(str(record.get("toolCallId")), record.get("isError") is not True)
        for output in self._translator.feed(record):
            self._tell(output)

    def _on_user(self, text: str) -> None:
        """What the person typed; the supervisor tells of its own messages itself."""
        if text == self._text:
            self._text = None
            return
        data = {"messageId": uuid.uuid4().hex, "origin": Origin.USER.value, "text": ev.bounded(text)}
        self._events.emit(ev.USER_MESSAGE, data)

    def _tell(self, output: Output) -> None:
        match output:
            case Emit(kind, data):
                self._events.emit(kind, data)
            case Now(doing):
                self._events.doing(doing)
            case ToolHeld(call):
                self._extension.held(call)
            case RunStarted():
                self._idle.clear()
                if not self._accepted:
                    self._events.busy()
            case RunSettled(aborted):
                if aborted and not self._aborting:  # the person pressed Escape
                    self._events.emit(ev.ABORT, {"reason": AbortReason.USER.value})
                self._settle(aborted)

    def _settle(self, aborted: bool) -> None:
        self._accepted = self._aborting = False
        self._stamp = self._text = None
        self._idle.set()
        self._events.settled(aborted=aborted)

    def _settle_lost(self) -> None:
        """Nobody will say it any more."""
        for output in self._translator.lost():
            self._tell(output)
        self._settle(True)

    # ---- the end of the connection ----------------------------------------------------------------

    def _on_goodbye(self, reason: str) -> None:
        if reason == "reload":
            self._reloading = asyncio.get_running_loop().call_later(RELOAD_S, self._not_back)
            return
        if not self._guest and reason in _ELSEWHERE and not self._idle.is_set():
            self._settle_lost()  # the conversation is left in the middle of a run
        self._leave(_WHY.get(reason, "Pi was quit"))

    def _gone(self) -> None:
        if self._reloading is None:
            self._leave("Pi ended")

    def _not_back(self) -> None:
        self._reloading = None
        if not self._extension.link.connected:
            self._leave("Pi did not come back from its reload")

    def _leave(self, reason: str) -> None:
        for _, answer in self._offers.values():
            if not answer.done():
                answer.set_result({"taken": None, "reason": reason})
        if self._guest and self._started and not self._closing and not self._over:
            self._over = True
            self._events.left(reason)

    def ended(self, reason: str) -> None:
        """For a body of one's own: its process is over."""
        for output in self._translator.lost():
            self._tell(output)
        self._idle.set()
        if self._closing or self._over:
            return
        if self._started:
            self._over = True
            self._events.lost(reason)
        elif not self._extension.hello.done():
            self._extension.hello.set_exception(AgentUnableError(f"pi ended at its start: {reason}"))


_ELSEWHERE = ("new", "resume", "fork")
_WHY = {
    "quit": "Pi was quit",
    "new": "Pi went to a new conversation",
    "resume": "Pi went to another conversation",
    "fork": "Pi went to a fork of the conversation",
}
