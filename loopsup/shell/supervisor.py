"""The supervisor of one session: the only main loop.

event → core → journal → effects → wait for the next event or the next deadline. There is one timer, in
`run`; everything else happens because something reported something. The parts: `Keeper` (the loop and its
journal), `AgentHost` (the agent; it tells `Reports`), `Bus` (events and followers), `Performer` (one method an
effect), `Vacancy` (when the session closes by itself), `Pulse` (its heartbeat).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopsup.clock import Clock
from loopsup.core.effects import Reply
from loopsup.core.events import (
    BranchMoved,
    Close,
    Event,
    Opened,
    RedeliveryEnded,
    Ticked,
)
from loopsup.core.model import AbortReason, Loop, Moment, State
from loopsup.core.overrides import Overrides
from loopsup.core.step import next_deadline, wants_agent
from loopsup.ports import Adapter, Launch, Marker, Permissions
from loopsup.shell.bus import Bus
from loopsup.shell.carrier import Carriers
from loopsup.shell.continuity import leaving, settings
from loopsup.shell.host import AgentHost
from loopsup.shell.keeper import Change, Keeper
from loopsup.shell.parking import Parking
from loopsup.shell.performer import Performer
from loopsup.shell.pulse import Pulse
from loopsup.shell.questions import Questions
from loopsup.shell.reports import Reports
from loopsup.shell.rule_book import RuleBook
from loopsup.shell.slot import AgentSlot
from loopsup.shell.tasks import Tasks
from loopsup.shell.vacancy import Vacancy
from loopsup.store.config import ContinuityConfig
from loopsup.store.facts import session_facts
from loopsup.store.identity import Identity, save_identity
from loopsup.wire import events as words
from loopsup.wire.status import SessionFacts, missed_object, status_object
from loopsup.wire.transition import newly_missed, transition_data

ARMED_SLEEP_S = 1.0  # Linux's monotonic clock stops in suspend: both clocks are read again this often
RELOAD = "reload"  # the reason of a close after which the same process goes on as a new program
ASKED = frozenset({"command", "internal_error"})  # a close that keeps also `loopsup tick` from going on
IDLE_SLEEP_S = 30.0  # with nothing armed; also how soon a vanished socket is made again


class Supervisor:
    """Joins the parts. All of it runs on one event loop's thread."""

    def __init__(
        self,
        identity: Identity,
        folder: Path,
        adapter: Adapter,
        launch: Callable[[Supervisor], Launch],
        permissions: Permissions,
        silence_ms: int,
        clock: Clock,
        pid: int,
        log: Callable[[str], None],
        continuity: ContinuityConfig | None = None,
    ) -> None:
        self.identity = identity
        self.folder = folder
        self.clock = clock
        self.log = log
        self.permissions = permissions
        self.changed = asyncio.Condition()
        self.asked_to_close = asyncio.Event()
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self.note: str | None = None
        self.hosted = False  # the agent runs in a person's terminal and cannot be started anew
        self.maintain: Callable[[], None] = lambda: None
        self._pid = pid
        self._wake = asyncio.Event()
        self._tasks = Tasks(self._fault, self.touch)
        self.spawn = self._tasks.spawn
        self._close_reason: str | None = None
        self.recheck_s = ARMED_SLEEP_S
        self.vacancy = Vacancy(self)
        self.parking = Parking(self)
        self.pulse = Pulse(self)
        self.bus = Bus(clock, log)
        self.keeper: Keeper | None = None
        questions = Questions(permissions, clock, self.publish, self._policy_answers, self.touch)
        carriers = Carriers(identity.socket, identity.name)
        slot = AgentSlot(adapter, lambda: launch(self), log, carriers)
        self.host = AgentHost(slot, Reports(self), questions, clock, silence_ms, self.spawn)
        self.performer = Performer(self)
        self.book = RuleBook(self)
        self._continuity = continuity or ContinuityConfig()
        self.host.recovery.change(settings(self._continuity, identity.continuity))

    # ---- state ------------------------------------------------------------------------------------

    @property
    def loop(self) -> Loop | None:
        return None if self.keeper is None else self.keeper.loop

    @property
    def closing(self) -> bool:
        return self._close_reason is not None

    @property
    def close_reason(self) -> str:
        return self._close_reason or ""

    def facts(self) -> SessionFacts:
        problem = (self.keeper.problem if self.keeper is not None else None) or self.bus.problem or self.note
        over = self.closed.is_set()  # the answer to `close` says how it stands afterwards
        return session_facts(
            self.identity,
            alive=not over,
            responding=not over,
            pid=None if over else self._pid,
            clients=self.bus.followers,
            problem=problem,
            parked=self.parking.parked,
        )

    def status(self) -> dict[str, Any]:
        run = self.host.run
        turns = run.turns if run is not None and run.stamp is not None else 0
        question = self.host.questions.pending
        recovery = self.host.recovery.status() if self.loop is None or self.loop.state is State.RUNNING else None
        now = self.clock.now()
        return status_object(
            self.facts(),
            self.loop,
            now,
            turns=turns,
            question=question,
            recovery=recovery,
            heartbeat=self.pulse.status(),
        )

    def recover(self, said: Overrides) -> None:
        """What a person wants of the recovery of interrupted responses, for as long as the session lives."""
        if said != self.identity.continuity:
            changed = replace(self.identity, continuity=said)
            save_identity(self.folder, changed)
            self.identity = changed
        self.host.recovery.change(settings(self._continuity, said))
        if not self.host.recovery.settings.on:
            self.fact(RedeliveryEnded(self.host.idle))
        self.touch()

    def park(self, wanted: bool) -> None:
        """Whether the agent is closed between wakes that are far apart, for the loop that begins."""
        if wanted != self.identity.park:
            changed = replace(self.identity, park=wanted)
            save_identity(self.folder, changed)
            self.identity = changed
        self.parking.begin()

    # ---- events into the core ---------------------------------------------------------------------

    def open(self, keeper: Keeper, turns: int, *, reload: bool = False) -> None:
        """Take over the journal (L-102, D-44), transparently at a reload (L-111)."""
        self.keeper = keeper
        keeper.fact(Opened(reload=reload, turns=turns))
        self.pulse.open(reload=reload)
        self.opened.set()

    def command(self, event: Event) -> Reply:
        """A person's command. StorageError: it could not be journaled and nothing changed."""
        assert self.keeper is not None
        reply = self.keeper.apply(event)
        self.touch()
        return reply

    def fact(self, event: Event) -> None:
        if self.keeper is not None:
            self.keeper.fact(event)
            self.touch()

    def on_change(self, change: Change) -> None:
        """After each journaled step: say what changed, mark the branch, do what it asks for, show the status."""
        missed = newly_missed(change.before, change.after, change.event)
        if missed is not None:
            self.publish(words.LOOP_MISFIRE, missed_object(missed))
        data = transition_data(change.before, change.after, change.event)
        if data is not None:
            self.publish(words.LOOP_TRANSITION, data)
        if change.after is not None:
            self.mark(Marker(change.after.id, change.seq))
        self._end_wait(change.after)
        for effect in change.effects:
            self.performer.perform(effect)
        self.bus.show_status(self.status())

    def _end_wait(self, loop: Loop | None) -> None:
        """Nothing is in flight during a wait, so a pause, a stop and the deadline come at once (X-19, X-20)."""
        run, reason = self.host.run, leaving(loop)
        if self.host.recovery.waiting and run is not None and run.stamp is not None and reason is not None:
            self.spawn(self.host.end(run, reason))

    def mark(self, marker: Marker) -> None:
        if self.host.slot.capabilities.branches and self.host.slot.up:
            self.spawn(self.host.slot.mark(marker))

    # ---- said by the parts ------------------------------------------------------------------------

    def publish(
        self, kind: str, data: Mapping[str, Any], *, iteration: int | None = None, agent_id: str | None = None
    ) -> None:
        self.bus.publish(kind, data, iteration=iteration, agent_id=agent_id)

    def moved_to(self, loop: Loop | None) -> None:
        self.fact(BranchMoved(loop))

    def _policy_answers(self, question_id: str, allow: bool, by: str, text: str) -> None:
        async def answer() -> None:
            await self.host.answer(question_id, allow, by, text)

        self.spawn(answer())

    # ---- the one loop -----------------------------------------------------------------------------

    def touch(self) -> None:
        """Something happened: look at everything again."""
        self._wake.set()

    def ask_to_close(self, reason: str) -> None:
        """End the session in good order; the first reason stands."""
        if self._close_reason is None:
            self._close_reason = reason
        self.asked_to_close.set()
        self.touch()

    def _fault(self, error: BaseException) -> None:
        self.log(f"internal error: {type(error).__name__}: {error}")
        self.publish(words.LOOP_NOTICE, {"message": f"internal error: {type(error).__name__} (supervisor.log)"})

    async def run(self) -> str:
        """Until the session is to be closed; returns why. `close` is the caller's next step."""
        while not self.closing:
            self._wake.clear()
            now = self.clock.now()
            try:
                self._tick(now)
                self.bus.show_status(self.status())
            except Exception as error:  # a fault of ours must not leave an agent behind
                self._fault(error)
                self.ask_to_close("internal_error")
            async with self.changed:
                self.changed.notify_all()
            if self.closing:
                break
            await self._sleep(now)
        assert self._close_reason is not None
        return self._close_reason

    @property
    def at_rest(self) -> bool:
        """No turn is in execution, no iteration under way, and everything is written (D-45, X-25)."""
        iterating = self.loop is not None and self.loop.flight is not None
        unwritten = self.keeper is not None and self.keeper.retry_at is not None
        return not (self.host.working or iterating or unwritten)

    async def _sleep(self, now: Moment) -> None:
        if self._wake.is_set():
            await asyncio.sleep(0)  # whoever touched it may have to go on before there is anything to see
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._patience_s(now))

    def _patience_s(self, now: Moment) -> float:
        retry_at = None if self.keeper is None else self.keeper.retry_at
        waits = [next_deadline(self.loop).wait_ms(now)] if retry_at is None else []  # nothing is armed meanwhile
        monos = [self.host.due(), retry_at, self.vacancy.due(), self.parking.due(), self.pulse.due()]
        waits += [max(0, at - now.mono) for at in monos if at is not None]
        armed = [wait for wait in waits if wait is not None]
        return min(min(armed) / 1000, self.recheck_s) if armed else IDLE_SLEEP_S

    def _tick(self, now: Moment) -> None:
        if self.keeper is not None:
            self.keeper.retry(now)
            self.keeper.fact(Ticked(idle=self.host.idle))
            if wants_agent(self.loop, now):
                self.host.want()
        self.pulse.tick(now)
        self.host.tick(now)
        self.maintain()
        self.vacancy.tick(now)
        self.parking.tick(now)

    async def close(self, reason: str) -> None:
        """Persist an active loop as paused, end the turn and the agent, say goodbye (L-109).

        One that somebody will take up again as it is (a reload, a unit after the reboot) stays as it is.
        """
        kept = reason == RELOAD or (reason == "signal" and self.identity.enabled and self.at_rest)
        if self.keeper is not None and not kept:
            run = self.host.run
            turns = run.turns if run is not None and run.stamp is not None else 0
            self.keeper.fact(Close(turns, leaving=reason not in ASKED))
        if not kept:
            self.pulse.close()
        await self.host.close(AbortReason.SHUTDOWN)
        await self.performer.drain()
        await self._tasks.end()
        self.publish(words.SESSION_SHUTDOWN, {"reason": reason})
        self.closed.set()
        async with self.changed:
            self.changed.notify_all()
        self.bus.show_status(self.status())
        self.bus.end(reason)
