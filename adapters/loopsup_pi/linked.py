"""A Pi with a person in front of it, driven through its extension alone (no `--mode rpc`).

The link carries everything: prompts go in as the extension's `sendUserMessage` (the person's half-typed line is
not touched), Pi's events come out in the shape its RPC mode would give them, so that one translator reads both.
Rules: one channel, so what the extension says is in order; a prompt counts as taken when Pi has begun with it;
what the person types there is a user's message like any other.
"""

from __future__ import annotations

import asyncio
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
from loopsup_pi.extension import Extension, conversation
from loopsup_pi.link import Record
from loopsup_pi.rpc import Inbox
from loopsup_pi.work import Work

START_S = 60.0  # a Pi that is brought up by `Body` takes a second or two of a processor; a busy machine gets the rest
HANDOVER_S = 50.0  # longer than the extension's own bound
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
        self._inbox = Inbox(self._on_event)
        self._extension = Extension(launch, events, self._stamp_in_flight, self._heard, self._gone)
        self._work = Work(events, self._extension)
        self._offers: dict[str, tuple[Prompt, asyncio.Future[Record]]] = {}
        self._unseen: Prompt | None = None  # the prompt in flight, until Pi shows it as its user's message
        self._started = self._closing = self._over = False
        self._reloading: asyncio.TimerHandle | None = None

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
        hold_ms = round(HOLD_S * 1000) if launch.hold_tools else 0
        await self._body.bring(self._extension.setup(hold_ms, launch.env.get("LOOPSUP_SESSION", "")))
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
        if self._extension.link.connected:
            await self._work.wind_up(self.abort)
        await self._extension.link.tell({"type": "released"})
        if self._reloading is not None:
            self._reloading.cancel()
        await self._body.end()
        await self._extension.link.close()

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if prompt.origin is Origin.TTSR:
            return await self._work.try_again(prompt)
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

    async def abort(self, reason: AbortReason) -> None:
        if not self._work.aborts(reason):
            return
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
            self._work.taken(prompt)
            self._unseen = prompt
            self._inbox.hold()
        answer.set_result(record)

    async def _stamp_in_flight(self) -> Stamp | None:
        return self._work.stamp

    def _on_event(self, record: Record) -> None:
        message = record.get("message")
        if record.get("type") == "message_start" and isinstance(message, dict) and message.get("role") == "user":
            self._on_user(str(message.get("text")))
            return
        self._work.feed(record)

    def _on_user(self, text: str) -> None:
        """What the person typed; the supervisor tells of its own messages itself."""
        unseen = self._unseen
        if unseen is not None and unseen is self._work.prompt and text == unseen.text:
            self._unseen = None
            return
        data = {"messageId": uuid.uuid4().hex, "origin": Origin.USER.value, "text": ev.bounded(text)}
        self._events.emit(ev.USER_MESSAGE, data)

    def _settle_lost(self) -> None:
        """Nobody will say it any more."""
        self._work.lost()
        self._work.settle(True)

    # ---- the end of the connection ----------------------------------------------------------------

    def _on_goodbye(self, reason: str) -> None:
        if reason == "reload":
            self._reloading = asyncio.get_running_loop().call_later(RELOAD_S, self._not_back)
            return
        if not self._guest and reason in _ELSEWHERE and not self._work.idle.is_set():
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
        self._work.lost()
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
