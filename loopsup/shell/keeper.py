"""Keeps the loop: every change is journaled before anything comes of it.

If the journal cannot be written, the state stays as it was: a command is refused, a decision is not
accepted, and a fact the world will not repeat waits and is tried again every 30 s (D-42).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from loopsup.clock import Clock
from loopsup.core.effects import Effect, Reply
from loopsup.core.events import Event, Ticked
from loopsup.core.model import Loop, Moment
from loopsup.core.step import advance
from loopsup.errors import StorageError
from loopsup.store.journal import JournalAppender

RETRY_MS = 30_000  # how often a full disk is tried again
MAX_PENDING = 1000  # facts kept while the disk is full; an agent produces a handful an hour


@dataclass(frozen=True, slots=True)
class Change:
    """One journaled step."""

    before: Loop | None
    after: Loop | None
    event: Event
    seq: int


@dataclass(frozen=True, slots=True)
class Outcome:
    effects: tuple[Effect, ...] = ()
    reply: Reply | None = None


class Keeper:
    """The loop of one session. `changed` is called after each journaled step, before its effects are performed."""

    def __init__(
        self, appender: JournalAppender, loop: Loop | None, clock: Clock, changed: Callable[[Change], None]
    ) -> None:
        self._appender = appender
        self._clock = clock
        self._changed = changed
        self._pending: deque[Event] = deque(maxlen=MAX_PENDING)
        self._retry_at: int | None = None
        self.loop = loop
        self.seq = appender.next_seq - 1
        self.problem: str | None = None

    @property
    def retry_at(self) -> int | None:
        """Monotonic instant of the next try to write what waits."""
        return self._retry_at

    def apply(self, event: Event) -> Outcome:
        """Step, journal, adopt. StorageError: it could not be written and nothing changed."""
        if self._pending:
            raise StorageError(self.problem or "the journal cannot be written")
        return self._apply(event, self._clock.now())

    def fact(self, event: Event) -> tuple[Effect, ...]:
        """A fact that must not be lost: if it cannot be written now, it waits for `retry`."""
        timely = isinstance(event, Ticked)  # comes again by itself
        if self._pending or (timely and self._retry_at is not None):
            if not timely:
                self._pending.append(event)
            return ()
        try:
            return self._apply(event, self._clock.now()).effects
        except StorageError:
            if not timely:
                self._pending.append(event)
            return ()

    def retry(self, now: Moment) -> tuple[Effect, ...]:
        """Try again what could not be written."""
        if self._retry_at is None or now.mono < self._retry_at:
            return ()
        self._retry_at = None
        self.problem = None
        effects: list[Effect] = []
        while self._pending:
            try:
                effects += self._apply(self._pending[0], now).effects
            except StorageError:
                return tuple(effects)
            self._pending.popleft()
        return tuple(effects)

    def _apply(self, event: Event, now: Moment) -> Outcome:
        effects: list[Effect] = []
        reply = None
        for step in advance(self.loop, event, now):
            if step.loop != self.loop:
                self._record(step.cause or event, step.loop, now)
            effects += step.effects
            reply = step.reply
        return Outcome(tuple(effects), reply)

    def _record(self, event: Event, after: Loop | None, now: Moment) -> None:
        try:
            seq = self._appender.append(now, event, after).seq
        except StorageError as error:
            self.problem = error.message
            if self._retry_at is None:
                self._retry_at = now.mono + RETRY_MS
            raise
        before, self.loop, self.seq, self.problem = self.loop, after, seq, None
        self._changed(Change(before, after, event, seq))
