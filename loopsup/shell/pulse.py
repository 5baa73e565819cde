"""The session's heartbeat at work: keeps it, and does what a beat asks for.

A state that could not be written is not acted on: the beat comes with the next try. With `ask` a beat is a message
into the agent's queue, so it has its turn like anybody's: never two at once, and no second one before the first
was answered.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from loopsup.core import heartbeat as core
from loopsup.core.effects import Reply
from loopsup.core.heartbeat import Heartbeat
from loopsup.core.model import Moment
from loopsup.errors import LoopsupError, StorageError
from loopsup.ports import Origin
from loopsup.shell.performer import language
from loopsup.shell.run import Message
from loopsup.store import heartbeat as file
from loopsup.wire import events as words
from loopsup.wire import heartbeat as wire

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

RETRY_MS = 30_000  # a full disk is tried again as often as for the journal
QUESTIONS = {
    "en": "[heartbeat]\n"
    "Say in a few sentences how the work stands: what is done, what is under way, what comes next.\n"
    "Do no further work for this, and do not call loop_control.",
    "pt": "[heartbeat]\n"
    "Diga em poucas frases como está o trabalho: o que está feito, o que está em curso, o que vem a\n"
    "seguir. Não faça mais trabalho para isto e não chame loop_control.",
}


class Pulse:
    """`state` None: no heartbeat."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.state: Heartbeat | None = None
        self._supervisor = supervisor
        self._answer: asyncio.Future[str] | None = None
        self._hook: asyncio.Task[None] | None = None
        self._not_before = 0

    @property
    def beats(self) -> bool:
        return core.beats(self.state)

    def status(self) -> dict[str, Any] | None:
        return wire.status_of(self.state)

    def open(self, *, reload: bool = False) -> None:
        """Take over what the file says."""
        try:
            self.state = file.load(self._supervisor.folder)
        except StorageError as error:  # what cannot be read keeps nobody (H-21)
            self._supervisor.log(error.message)
            return
        self._step(core.Found(reload=reload))

    def command(self, event: core.Event) -> Reply:
        """A person's command. StorageError: nothing changed."""
        now = self._supervisor.clock.now()
        made = core.step(self.state, event, now)
        self._adopt(made)
        self._supervisor.touch()
        assert made.reply is not None
        return made.reply

    def due(self) -> int | None:
        """The monotonic instant at which `tick` has something to do."""
        due = None if self.state is None else core.next_due(self.state)
        return None if due is None else max(due.mono, self._not_before)

    def tick(self, now: Moment) -> None:
        if now.mono >= self._not_before:
            self._step(core.Time())

    def close(self) -> None:
        """The session closes: kept, and not beating."""
        self._step(core.Shut())

    def _step(self, event: core.Event) -> None:
        now = self._supervisor.clock.now()
        made = core.step(self.state, event, now)
        try:
            self._adopt(made)
        except StorageError as error:
            self._supervisor.log(error.message)
            self._not_before = now.mono + RETRY_MS
            return
        if made.over:
            self._supervisor.publish(words.LOOP_NOTICE, {"message": "the heartbeat has ended: its time is over"})
        if made.beat:
            self._beat(now)

    def _adopt(self, made: core.Beaten) -> None:
        if made.heartbeat != self.state:
            file.save(self._supervisor.folder, made.heartbeat)
            self.state = made.heartbeat

    def _beat(self, now: Moment) -> None:
        supervisor = self._supervisor
        assert self.state is not None
        report = wire.report_of(self.state, supervisor.status(), now.wall)
        supervisor.publish(words.SESSION_HEARTBEAT, report)
        if self._hook is None or self._hook.done():  # a slow one gets the next report: they never pile up
            self._hook = supervisor.performer.tell_hook(wire.report_bytes(report))
        if self.state.ask and (self._answer is None or self._answer.done()):
            self._answer = asyncio.get_running_loop().create_future()
            self._answer.add_done_callback(_heard)
            text = QUESTIONS.get(language(), QUESTIONS["en"])
            supervisor.host.say(Message(text, str(uuid.uuid4()), self._answer, origin=Origin.HEARTBEAT))


def _heard(answer: asyncio.Future[str]) -> None:
    """Nobody waits for the answer: it is in the conversation. A failure was published where it happened."""
    if not answer.cancelled():
        error = answer.exception()
        assert error is None or isinstance(error, LoopsupError)
