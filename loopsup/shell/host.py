"""The agent of a session: brought up when something is to be said to it, one prompt at a time.

Rules. A user message goes before a prompt of the loop. A prompt whose fate nobody knows is never sent
again: the agent is ended instead. Reports of an agent that was ended are ignored (`AgentLink`); what comes of
the others is in hearing.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from loopsup.clock import Clock
from loopsup.core.facts import UNKNOWN_ARRIVAL
from loopsup.core.model import AbortReason, Moment
from loopsup.errors import LoopsupError
from loopsup.ports import (
    Accepted,
    AgentStarted,
    Handover,
    Origin,
    Prompt,
    Refused,
    Stamp,
    Unknown,
)
from loopsup.shell.continuity import Recovery
from loopsup.shell.desk import Desk
from loopsup.shell.hearing import Hearing
from loopsup.shell.link import AgentLink
from loopsup.shell.outbox import Outbox
from loopsup.shell.questions import Questions
from loopsup.shell.rules import REQUESTS, StreamRules
from loopsup.shell.run import Message, Run, fail
from loopsup.shell.slot import AgentSlot
from loopsup.shell.watching import Watch
from loopsup.wire import events as words

CLOSE_SETTLE_S = 5.0  # an aborted turn settles at once; the ladder follows


class AgentHost:
    """Owns the agent process and knows whether it can take a prompt."""

    def __init__(
        self,
        slot: AgentSlot,
        desk: Desk,
        questions: Questions,
        clock: Clock,
        silence_ms: int,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.slot = slot
        self.run: Run | None = None
        self.prompted: Stamp | None = None  # of the newest prompt, also after it has settled
        self.desk = desk
        self.questions = questions
        self._clock = clock
        self.watch = Watch(clock, questions, silence_ms, slot.capabilities.terminate_on_tool)
        self._spawn = spawn
        self._starting: asyncio.Task[None] | None = None
        self._closing = False
        self.outbox = Outbox(self, clock)
        self._quiet = asyncio.Event()  # set while no run is in flight
        self._quiet.set()
        self.hearing = Hearing(self, clock)
        self.recovery = Recovery(self, clock)
        self.rules = StreamRules(self, clock)

    # ---- what the supervisor asks -----------------------------------------------------------------

    @property
    def working(self) -> bool:
        """A turn is in execution, or something is on its way to one."""
        return self.run is not None or self._starting is not None or bool(self.outbox)

    @property
    def idle(self) -> bool:
        """Whether a prompt of the loop can be handed over now."""
        return self.slot.up and self.run is None and not self.outbox and not self._closing

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def unsaid(self) -> bool:
        """A user's message waits for its turn."""
        return bool(self.outbox)

    def quiet(self, now: Moment, ms: int) -> bool:
        """A turn outside the loop is in flight that nothing was heard of for this long; a wait is no silence."""
        run = self.run
        if run is None or run.stamp is not None or run.aborted is not None or self.recovery.waiting:
            return False
        return self.watch.quiet(now, ms)

    def want(self) -> None:
        """Bring the agent up, if it is not on its way already; a failure is told to the desk."""
        if not self.slot.up and self._starting is None and not self._closing:
            self._starting = self._spawn(self._start_for_later())

    async def start(self) -> AgentStarted:
        """Bring the agent up. AgentUnableError in its own words."""
        started = await self.slot.start(AgentLink(self))
        self.watch.sign()
        self.desk.came_up(started)
        return started

    async def _start_for_later(self) -> None:
        try:
            await self.start()
        except LoopsupError as error:
            self._starting = None
            self.outbox.fail(error)
            self.desk.start_failed(error.message)
        else:
            self._starting = None
            self.pump()

    async def hand_over(self, prompt: Prompt, message: Message | None = None, *, fresh: bool = True) -> Handover:
        """Give the agent a prompt. The `user.message` event appears once it has provably arrived."""
        if not self.slot.up:
            return Refused("the agent is not there")
        if self.run is not None:
            return Refused("the agent is working", busy=True)
        said = {"messageId": prompt.message_id, "origin": prompt.origin.value, "text": prompt.text}
        run = self.take(Run(stamp=prompt.stamp, unsaid=said))
        self.prompted = prompt.stamp
        if message is not None:
            run.waiter, run.reminders = message.waiter, message.reminders
        if fresh:
            self.recovery.begin(prompt.origin)
        self.rules.begin(fresh=fresh and prompt.origin in REQUESTS)
        self.watch.sign()
        # A decision before its reminder went out belongs to the response before: then no reminder is needed.
        reminds = prompt.origin is Origin.PROTOCOL
        result = await self.slot.prompt(replace(prompt, wanted=lambda: not reminds or run.decided is None))
        if self.run is not run:  # settled or lost while the answer was on its way
            return Accepted()
        if isinstance(result, Refused) and (run.turns or (run.decided is not None and not reminds)):
            result = Unknown(f"it was refused and worked on all the same: {result.reason}")
        match result:
            case Accepted():
                self.told(run)
            case Refused():
                self.let_go()
            case Unknown(reason):
                await self.end_agent(f"{UNKNOWN_ARRIVAL} ({reason})")
        return result

    def say(self, message: Message) -> None:
        """Queue a user's message; it goes out as soon as the agent is idle."""
        self.outbox.add(message)
        self.recovery.leave("a message came in")
        self.pump()

    def pump(self) -> None:
        """Deliver the next user message, or tell that the agent is idle."""
        if not self.outbox.offer():
            self.desk.ready()

    async def abort(self, reason: AbortReason) -> bool:
        """End the response in flight; False if there is none."""
        run = self.run
        if not self.slot.up or run is None:
            return False
        if run.aborted is None:
            run.aborted = reason
        if self.rules.resting:  # nothing is in flight: the run ends here
            self.desk.publish(words.ABORT, {"reason": reason.value}, iteration=run.iteration)
            self.rules.cancel(f"the response was aborted ({reason})")
            return True
        self.rules.cancel(f"the response was aborted ({reason})")
        run.abort_asked = run.abort_asked or self._clock.now().mono
        await self.slot.abort(reason)  # one that does not listen is ended by the watch
        self.recovery.leave(None)
        return True

    async def answer(self, question_id: str | None, allow: bool, by: str, text: str) -> str | None:
        """Answer a pending question; its id, None if there is no such question."""
        question = self.questions.take(question_id)
        if question is None:
            return None
        outcome = "allowed" if allow else "denied"
        self.desk.publish(words.PERMISSION_COMPLETED, {"id": question.id, "outcome": outcome, "by": by})
        await self.slot.answer(question.id, allow, text)
        self.desk.ready()
        return question.id

    async def close(self, reason: AbortReason) -> None:
        """End the response in flight, then the agent; nothing is reported any more."""
        self._closing = True
        self.outbox.fail(LoopsupError("the session was closed"))
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if await self.abort(reason):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), CLOSE_SETTLE_S)
        await self.slot.empty(for_good=True)
        if (run := self.let_go()) is not None:  # it was asked to settle and did not
            self.close_turn(run, "aborted")
            fail(run.waiter, LoopsupError("the session was closed"))

    # ---- time -------------------------------------------------------------------------------------

    def due(self) -> int | None:
        """The next monotonic instant at which `tick` has something to do."""
        run = self.run
        found = [self.questions.due(), self.recovery.due(self._clock.now()), self.rules.due()]
        if run is not None and self.slot.up:
            found.append(self.watch.due(run))
        found.append(self.outbox.due())
        return min((at for at in found if at is not None), default=None)

    def tick(self, now: Moment) -> None:
        """Watch over the run in flight and over questions nobody answers. Never waits for the agent."""
        for question in self.questions.expired(now.mono):
            self._spawn(self._deny(question.id))
        self.recovery.tick(now)
        self.rules.tick(now)
        run = self.run
        if run is None:
            self.outbox.offer()  # and no news of it: that would bring the next tick at once, for ever
        elif self.watch.ignored(run, now):
            run.abort_asked = None
            self._spawn(self.end_agent("it did not end its response when it was asked to"))
        elif (reason := self.watch.cut(run, now)) is not None:
            if reason is AbortReason.WATCHDOG:
                told = "the agent has been silent for too long; its response is aborted"
                self.desk.publish(words.LOOP_NOTICE, {"message": told})
            run.aborted = reason
            self._spawn(self.end(run, reason))

    async def end(self, run: Run, reason: AbortReason) -> None:
        """Abort this run, if it is still in flight and nobody does already."""
        if self.run is run and run.abort_asked is None:
            await self.abort(reason)

    async def _deny(self, question_id: str) -> None:
        await self.answer(question_id, False, "timeout", self.questions.unanswered_text)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._spawn(work)

    # ---- inside -----------------------------------------------------------------------------------

    def take(self, run: Run) -> Run:
        self.run = run
        self._quiet.clear()
        return run

    def let_go(self) -> Run | None:
        run, self.run = self.run, None
        self.recovery.settled()
        self.rules.over("the run has ended")
        self._quiet.set()
        return run

    def told(self, run: Run) -> None:
        """The prompt has provably arrived."""
        if run.unsaid is not None:
            said, run.unsaid = run.unsaid, None
            self.desk.publish(words.USER_MESSAGE, said, iteration=run.iteration)

    def close_turn(self, run: Run, reason: str) -> None:
        """Every turn gets its end."""
        if run.open_turn is not None:
            data = {"turnId": run.open_turn, "stopReason": reason}
            run.open_turn = None
            self.desk.publish(words.TURN_END, data, iteration=run.iteration)

    async def end_agent(self, reason: str) -> None:
        """End the process: what it was doing is lost."""
        await self.slot.empty()
        self.hearing.lost(reason)
