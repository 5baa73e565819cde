"""Keeps the loop: every change is journaled before anything comes of it.

If the journal cannot be written, the state stays as it was: a command is refused, a decision is not
accepted, and a fact the world will not repeat waits and is tried again every 30 s (D-42).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from loopsup.clock import Clock
from loopsup.core.effects import Effect, Reply, Step
from loopsup.core.events import Event, Ticked, TtsrInjection
from loopsup.core.model import Loop, Moment
from loopsup.core.step import advance
from loopsup.errors import StorageError
from loopsup.store.journal import JournalAppender

RETRY_MS = 30_000  # how often a full disk is tried again
MAX_PENDING = 1000  # facts kept while the disk is full; an agent produces a handful an hour


@dataclass(frozen=True, slots=True)
class Change:
    """One journaled step, and what it asks for: never without a change of the loop (but for the record of a stream
    rule), never before its record."""

    before: Loop | None
    after: Loop | None
    event: Event
    seq: int
    effects: tuple[Effect, ...] = ()


class Keeper:
    """The loop of one session. `changed` is called after each journaled step and performs its effects."""

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

    def apply(self, event: Event) -> Reply:
        """Step, journal, adopt. StorageError: it could not be written and nothing changed.

        What waits goes first, and somebody who asks is a reason to try it before its time.
        """
        now = self._clock.now()
        self._write_pending(now)
        if self._pending:
            raise StorageError(self.problem or "the journal cannot be written")
        return self._apply(event, now)

    def fact(self, event: Event) -> None:
        """A fact that must not be lost: if it cannot be written now, it waits for `retry`."""
        timely = isinstance(event, Ticked)  # comes again by itself
        if self._pending or (timely and self._retry_at is not None):
            if not timely:
                self._pending.append(event)
            return
        try:
            self._apply(event, self._clock.now())
        except StorageError:
            if not timely:
                self._pending.append(event)

    def retry(self, now: Moment) -> None:
        """Try again what could not be written."""
        if self._retry_at is None or now.mono < self._retry_at:
            return
        self._retry_at = None
        self.problem = None
        self._write_pending(now)

    def _write_pending(self, now: Moment) -> None:
        while self._pending:
            try:
                self._apply(self._pending[0], now)
            except StorageError:
                return
            self._pending.popleft()

    def _apply(self, event: Event, now: Moment) -> Reply:
        reply = None
        for step in advance(self.loop, event, now):
            cause = step.cause or event
            if step.loop != self.loop or isinstance(cause, TtsrInjection):
                self._record(step, cause, now)
            reply = step.reply
        return reply or Reply(True)

    def _record(self, step: Step, cause: Event, now: Moment) -> None:
        try:
            seq = self._appender.append(now, cause, step.loop).seq
        except StorageError as error:
            self.problem = error.message
            if self._retry_at is None:
                self._retry_at = now.mono + RETRY_MS
            raise
        before, self.loop, self.seq = self.loop, step.loop, seq
        self.problem = self._retry_at = None
        self._changed(Change(before, step.loop, cause, seq, step.effects))
