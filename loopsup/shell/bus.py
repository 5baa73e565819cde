"""The session's events: numbered, written to events.jsonl, handed to every follower.

A follower that does not read is dropped, never the session: its queue is bounded. What is ephemeral
(deltas, idle) reaches only who is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from loopsup.clock import Clock
from loopsup.errors import StorageError
from loopsup.store.eventlog import EventWriter
from loopsup.wire.control import FOLLOW_BACKLOG, follow_line
from loopsup.wire.events import EPHEMERAL, ConversationEvent, encode

FOLLOWER_QUEUE = 5000  # lines a slow terminal may lag behind; a burst of deltas is a few thousand
FOLLOWER_BYTES = 64 * 1024 * 1024  # and their size: a few of the longest lines there can be (MAX_EVENT)

CLOCKS = frozenset({"calendarElapsedMs", "deadlineRemainingMs"})  # fields of status that change by themselves


class Follower:
    """One connection that watches. `dropped` once it lagged too far behind; a `deaf` one only counts as present."""

    def __init__(self, *, deaf: bool = False) -> None:
        self._deaf = deaf
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._bytes = 0
        self.dropped = False
        self.on_drop: Callable[[], object] = lambda: None

    def put(self, line: bytes | None) -> None:
        if self.dropped or self._deaf:
            return
        if line is not None and (self._lines.qsize() >= FOLLOWER_QUEUE or self._bytes + len(line) > FOLLOWER_BYTES):
            self.dropped = True
            line = None
            self.on_drop()
        self._bytes += len(line or b"")
        self._lines.put_nowait(line)

    async def next(self) -> bytes | None:
        """The next line; None: the stream is over."""
        line = await self._lines.get()
        self._bytes -= len(line or b"")
        return line


class Bus:
    """Publishes. Until `attach` gives it the log, events wait in memory (a new session has no folder yet)."""

    def __init__(self, clock: Clock, log: Callable[[str], None]) -> None:
        self._clock = clock
        self._log = log
        self._writer: EventWriter | None = None
        self._early: list[tuple[str, Mapping[str, Any], int | None, str | None]] = []
        self._backlog: deque[tuple[int, bytes]] = deque(maxlen=FOLLOW_BACKLOG)
        self._followers: set[Follower] = set()
        self._shown: object = None
        self.active_at = clock.now().mono  # when something last happened, or somebody came or left
        self.problem: str | None = None

    @property
    def followers(self) -> int:
        return len(self._followers)

    def attach(self, writer: EventWriter) -> None:
        self._writer = writer
        early, self._early = self._early, []
        for kind, data, iteration, agent_id in early:
            self.publish(kind, data, iteration=iteration, agent_id=agent_id)

    def publish(
        self, kind: str, data: Mapping[str, Any], *, iteration: int | None = None, agent_id: str | None = None
    ) -> None:
        """Number, store (unless ephemeral) and show one event. A full disk loses the line, not the session."""
        if self._writer is None:
            self._early.append((kind, data, iteration, agent_id))
            return
        now = self._clock.now()
        self.active_at, at = now.mono, now.wall
        if kind in EPHEMERAL and not self._followers:
            return  # nobody is there to see it
        if kind in EPHEMERAL:
            event = ConversationEvent(self._writer.next_seq - 1, at, kind, data, iteration, agent_id)
        else:
            event = self._store(at, kind, data, iteration, agent_id)
        line = _follow_event(event)
        if kind not in EPHEMERAL:
            self._backlog.append((event.seq, line))
        self._show(line)

    def _store(
        self, at: int, kind: str, data: Mapping[str, Any], iteration: int | None, agent_id: str | None
    ) -> ConversationEvent:
        assert self._writer is not None
        try:
            event = self._writer.append(at, kind, data, iteration=iteration, agent_id=agent_id)
        except StorageError as error:
            if self.problem is None:
                self._log(f"events.jsonl: {error.message}")
            self.problem = error.message
            return ConversationEvent(self._writer.next_seq, at, kind, data, iteration, agent_id)
        self.problem = None
        return event

    def subscribe(self, since: int | None) -> Follower:
        """A new follower; `since`: stored events after that number come first, as far as they are in memory."""
        self.active_at = self._clock.now().mono
        follower = Follower()
        if since is not None:
            for seq, line in self._backlog:
                if seq > since:
                    follower.put(line)
        self._followers.add(follower)
        return follower

    def join(self) -> Follower:
        """A follower that is there and reads nothing: nothing is kept for it."""
        follower = Follower(deaf=True)
        self._followers.add(follower)
        return follower

    def unsubscribe(self, follower: Follower) -> None:
        self.active_at = self._clock.now().mono
        self._followers.discard(follower)

    def show_status(self, status: Mapping[str, Any]) -> None:
        """Tell the followers, if it says anything new (running clocks are not news)."""
        if not self._followers or (news := _news(status)) == self._shown:
            return
        self._shown = news
        self._show(follow_line("status", status))

    def _show(self, line: bytes) -> None:
        for follower in tuple(self._followers):
            follower.put(line)
            if follower.dropped:  # it reads what it has; nobody's session is kept open for it
                self._followers.discard(follower)

    def end(self, reason: str) -> None:
        """The session ends: the last line for everybody."""
        line = follow_line("closed", reason)
        for follower in self._followers:
            follower.put(line)
            follower.put(None)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _follow_event(event: ConversationEvent) -> bytes:
    return b'{"event":' + encode(event).rstrip(b"\n") + b"}\n"


def _news(status: Mapping[str, Any]) -> object:
    loop = status.get("loop")
    if not isinstance(loop, dict):
        return status
    return status["session"], {key: value for key, value in loop.items() if key not in CLOCKS}
