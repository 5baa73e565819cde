"""The supervisor of one session: the only main loop.

event → core → journal → effects → wait for the next event or the next deadline. There is one timer, in
`run`; everything else happens because something reported something. The parts: `Keeper` (the loop and its
journal), `AgentHost` (the agent), `Bus` (events and followers), `Performer` (one method an effect).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopsup.clock import Clock
from loopsup.core import reaper
from loopsup.core.effects import Reply
from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    BranchMoved,
    Close,
    ConversationForking,
    DecisionCalled,
    Event,
    IterationSettled,
    Opened,
    RedeliveryEnded,
    Ticked,
)
from loopsup.core.model import AbortReason, Loop, Moment, State
from loopsup.core.overrides import Overrides
from loopsup.core.step import next_deadline, wants_agent
from loopsup.errors import StorageError
from loopsup.ports import Adapter, AgentStarted, Answer, DecisionCall, Launch, Marker, Permissions, Verdict
from loopsup.shell import leftover, typed
from loopsup.shell.bus import Bus
from loopsup.shell.carrier import Carriers
from loopsup.shell.continuity import leaving, settings
from loopsup.shell.host import AgentHost
from loopsup.shell.keeper import Change, Keeper
from loopsup.shell.performer import Performer
from loopsup.shell.questions import Questions
from loopsup.shell.run import Run
from loopsup.shell.slot import AgentSlot
from loopsup.store.config import ContinuityConfig
from loopsup.store.facts import session_facts
from loopsup.store.identity import Identity, save_identity
from loopsup.wire import events as words
from loopsup.wire.status import SessionFacts, status_object
from loopsup.wire.transition import transition_data

ARMED_SLEEP_S = 1.0  # Linux's monotonic clock stops in suspend: both clocks are read again this often
IDLE_SLEEP_S = 30.0  # with nothing armed; also how soon a vanished socket is made again
ACTIVE = frozenset({State.WAITING, State.QUEUED, State.RUNNING})
UNANSWERED = "The disk is full or the journal cannot be written, so the decision was not recorded; call it again."


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
        self.maintain: Callable[[], None] = lambda: None
        self._pid = pid
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._close_reason: str | None = None
        self._vacant_since: int | None = None
        self.recheck_s = ARMED_SLEEP_S
        self.hold_open = False
        self.ends_with_loop = False
        self.bus = Bus(clock, log)
        self.keeper: Keeper | None = None
        questions = Questions(permissions, clock, self.publish, self._policy_answers, self.touch)
        carriers = Carriers(identity.socket, identity.name)
        slot = AgentSlot(adapter, lambda: launch(self), log, carriers)
        self.host = AgentHost(slot, self, questions, clock, silence_ms, self.spawn)
        self.performer = Performer(self)
        self._continuity = continuity or ContinuityConfig()
        self.host.recovery.change(settings(self._continuity, identity.continuity))

    # ---- state ------------------------------------------------------------------------------------

    @property
    def loop(self) -> Loop | None:
        return None if self.keeper is None else self.keeper.loop

    @property
    def closing(self) -> bool:
        return self._close_reason is not None

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
        )

    def status(self) -> dict[str, Any]:
        run = self.host.run
        turns = run.turns if run is not None and run.stamp is not None else 0
        question = self.host.questions.pending
        recovery = self.host.recovery.status() if self.loop is None or self.loop.state is State.RUNNING else None
        now = self.clock.now()
        return status_object(self.facts(), self.loop, now, turns=turns, question=question, recovery=recovery)

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

    # ---- events into the core ---------------------------------------------------------------------

    def open(self, keeper: Keeper, turns: int) -> None:
        """Take over the journal (L-102, D-44)."""
        self.keeper = keeper
        keeper.fact(Opened(turns=turns))
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
        data = transition_data(change.before, change.after, change.event)
        if data is not None:
            self.publish(words.LOOP_TRANSITION, data)
        if change.after is not None:
            self._mark(Marker(change.after.id, change.seq))
        self._end_wait(change.after)
        for effect in change.effects:
            self.performer.perform(effect)
        self.bus.show_status(self.status())

    def _end_wait(self, loop: Loop | None) -> None:
        """Nothing is in flight during a wait, so a pause, a stop and the deadline come at once (X-19, X-20)."""
        run, reason = self.host.run, leaving(loop)
        if self.host.recovery.waiting and run is not None and run.stamp is not None and reason is not None:
            self.spawn(self.host.end(run, reason))

    def _mark(self, marker: Marker) -> None:
        if self.host.slot.capabilities.branches and self.host.slot.up:
            self.spawn(self.host.slot.mark(marker))

    # ---- Desk: what the agent's host tells --------------------------------------------------------

    def publish(
        self, kind: str, data: Mapping[str, Any], *, iteration: int | None = None, agent_id: str | None = None
    ) -> None:
        self.bus.publish(kind, data, iteration=iteration, agent_id=agent_id)

    def settled(self, run: Run) -> None:
        if run.stamp is None:
            self.touch()
            return
        self.fact(
            IterationSettled(
                run.stamp, self.host.idle, run.turns, run.aborted, run.error, self.host.recovery.again_ms(run)
            )
        )

    def agent_lost(self, run: Run, reason: str) -> None:
        reason = words.bounded(reason)  # it goes into the journal and the status
        self.log(f"the agent ended in a turn: {reason}")
        if run.stamp is None:
            self.touch()
        elif run.aborted is not None:  # it was to be aborted and had to be ended for it
            self.fact(IterationSettled(run.stamp, False, run.turns, run.aborted, f"the agent ended: {reason}"))
        else:
            self.fact(AgentLost(reason, run.turns))

    def start_failed(self, reason: str) -> None:
        reason = words.bounded(reason)
        self.log(f"the agent could not be started: {reason}")
        self.publish(words.SESSION_ERROR, {"kind": "agent_start", "message": reason})
        self.fact(AgentStartFailed(reason))

    def came_up(self, started: AgentStarted) -> None:
        conversation = started.conversation
        self.log(f"the agent is up (process {self.host.slot.pid}, conversation {conversation.id})")
        leftover.note(self.folder, self.host.slot.pid, self.log)
        kind = words.SESSION_START if self.identity.agent_session_id is None else words.SESSION_RESUME
        data: dict[str, Any] = {"agent": self.identity.agent, "agentSessionId": conversation.id}
        if conversation.file is not None:
            data["file"] = str(conversation.file)
        self.publish(kind, {**data, "cwd": str(conversation.cwd)})
        self._check_file(None if conversation.file is None else str(conversation.file))
        moved = started.marker != started.newest
        if self.keeper is not None and (moved or (self.loop is None and started.marker is not None)):
            self.branch(started.marker)  # somebody moved in the tree while nobody was here
        elif self.keeper is not None and self.loop is not None:
            self._mark(Marker(self.loop.id, self.keeper.seq))

    def _check_file(self, file: str | None) -> None:
        """An agent whose conversation was deleted begins an empty one under the same id: that is told."""
        known = self.identity.agent_file
        if file is None or known is None or os.path.realpath(file) == os.path.realpath(known):
            return
        if self.loop is not None and self.loop.prompts_sent:
            told = f"the conversation's file {known} is gone: the agent has begun an empty one in {file}"
            self.publish(words.LOOP_NOTICE, {"message": told})
        self.identity = replace(self.identity, agent_file=file)
        try:
            save_identity(self.folder, self.identity)
        except StorageError as error:
            self.log(error.message)

    def decide(self, call: DecisionCall) -> Verdict:
        if self.keeper is None:
            return Verdict(False, "no iteration of the loop is running here; do not repeat this call")
        try:
            reply = self.command(DecisionCalled(call.stamp, call.arguments))
        except StorageError:
            return Verdict(False, UNANSWERED)
        return Verdict(reply.ok, reply.message)

    def forking(self, what: str) -> None:
        self.fact(ConversationForking())
        self.publish(words.LOOP_NOTICE, {"message": f"the conversation divides ({what}): the loop pauses"})

    def branch(self, marker: Marker | None) -> None:
        self.performer.branch(marker)

    def moved_to(self, loop: Loop | None) -> None:
        self.fact(BranchMoved(loop))

    async def typed(self, line: str) -> Answer:
        return await typed.carry_out(self, line)

    def left(self, reason: str) -> None:
        self.log(f"the agent has left: {reason}")
        self.publish(words.LOOP_NOTICE, {"message": f"the session closes: {words.bounded(reason)}"})
        self.ask_to_close("agent_left")

    def ready(self) -> None:
        self.touch()

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

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault(error)
        self.touch()

    def _fault(self, error: BaseException) -> None:
        self.log(f"internal error: {type(error).__name__}: {error}")
        self.publish(words.LOOP_NOTICE, {"message": f"internal error: {type(error).__name__} (supervisor.log)"})

    async def _end_tasks(self) -> None:
        """What still waits for the agent (an answer to a hand-over, say) waits for nobody now."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

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

    async def _sleep(self, now: Moment) -> None:
        if self._wake.is_set():
            await asyncio.sleep(0)  # whoever touched it may have to go on before there is anything to see
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._patience_s(now))

    def _patience_s(self, now: Moment) -> float:
        retry_at = None if self.keeper is None else self.keeper.retry_at
        waits = [next_deadline(self.loop).wait_ms(now)] if retry_at is None else []  # nothing is armed meanwhile
        monos = [self.host.due(), retry_at]
        if self._vacant_since is not None:
            monos.append(self._vacant_since + reaper.VACANT_GRACE_MS)
        waits += [max(0, at - now.mono) for at in monos if at is not None]
        armed = [wait for wait in waits if wait is not None]
        return min(min(armed) / 1000, self.recheck_s) if armed else IDLE_SLEEP_S

    def _tick(self, now: Moment) -> None:
        if self.keeper is not None:
            self.keeper.retry(now)
            self.keeper.fact(Ticked(idle=self.host.idle))
            if wants_agent(self.loop, now):
                self.host.want()
        self.host.tick(now)
        self.maintain()
        self._maybe_close(now)

    def _maybe_close(self, now: Moment) -> None:
        if self.ends_with_loop:
            if self.loop is not None and self.loop.state not in ACTIVE:
                self.ask_to_close("loop_ended")
            return
        if self.hold_open or not reaper.vacant(self.loop, self.bus.followers, self.host.working):
            self._vacant_since = None
        elif self._vacant_since is None:
            self._vacant_since = now.mono
        elif now.mono - self._vacant_since >= reaper.VACANT_GRACE_MS:
            self.ask_to_close("idle")

    async def close(self, reason: str) -> None:
        """Persist an active loop as paused, end the turn and the agent, say goodbye (L-109)."""
        if self.keeper is not None:
            run = self.host.run
            turns = run.turns if run is not None and run.stamp is not None else 0
            self.keeper.fact(Close(turns))
        await self.host.close(AbortReason.SHUTDOWN)
        await self.performer.drain()
        await self._end_tasks()
        self.publish(words.SESSION_SHUTDOWN, {"reason": reason})
        self.closed.set()
        async with self.changed:
            self.changed.notify_all()
        self.bus.show_status(self.status())
        self.bus.end(reason)
