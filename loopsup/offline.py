"""What can be done to a session without a supervisor: read its state, pause, stop, update and close it.

Rules. A change takes the session's lock first (so no supervisor can come up meanwhile), opens the journal
as any supervisor would (what a dead one left behind, and a deadline that passed, are recorded first), makes
one step, and lets go. No agent is started. What the core announces by the way is shown in the status and in
the event log, and the attention hook is started without waiting for it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopsup.clock import Clock, supervisors_clock
from loopsup.core.model import Moment, State
from loopsup.errors import LoopsupError, NotFoundError, RefusedError, from_kind
from loopsup.store import heartbeat as heartbeats
from loopsup.store import journal, lock
from loopsup.store.facts import session_facts
from loopsup.wire.control import Response
from loopsup.wire.events import LOOP_ATTENTION, LOOP_MISFIRE, LOOP_TRANSITION, TURN_END
from loopsup.wire.journal import Record
from loopsup.wire.status import Lost, SessionFacts, lost_of, missed_object, status_object, without_owner
from loopsup.wire.transition import newly_missed, transition_data

if TYPE_CHECKING:
    from pathlib import Path

    from loopsup.cli.selection import Session
    from loopsup.core.effects import Reply, Step
    from loopsup.core.events import Event


def status(session: Session, *, alive: bool = False, clock: Clock | None = None) -> dict[str, Any]:
    """The status object from the files. `alive`: somebody holds the lock but does not answer."""
    tail = journal.read_tail(session.folder)
    now = (clock or supervisors_clock(os.environ)).now()
    loop = tail.loop if alive else without_owner(tail.loop, now)
    facts = _facts(session, alive=alive, problem=tail.problem())
    beat = heartbeat_status(session.folder, alive=alive)
    return status_object(facts, loop, now, heartbeat=beat, lost=None if alive else _lost(session, tail))


def heartbeat_status(folder: Path, *, alive: bool = False) -> dict[str, Any] | None:
    """What the file says of the heartbeat; without a supervisor nothing beats."""
    if not (folder / heartbeats.NAME).exists():
        return None
    from loopsup.core.heartbeat import Found, step
    from loopsup.wire.heartbeat import status_of

    try:
        found = heartbeats.load(folder)
    except LoopsupError:
        return None
    return status_of(found if alive else step(found, Found(), supervisors_clock(os.environ).now()).heartbeat)


def enable(session: Session, *, on: bool) -> Response:
    """Note in session.toml whether a unit opens the session again."""
    from loopsup.store.identity import load_identity, save_identity

    with _Owned(session, supervisors_clock(os.environ)) as owned:
        owned.take(None)
        save_identity(session.folder, replace(load_identity(session.folder), enabled=on))
        return Response(owned.status())


def heartbeat(session: Session, action: str) -> Response:
    """`heartbeat pause` and `heartbeat stop` without a supervisor."""
    from loopsup.core.heartbeat import End, Found, Halt, step

    now = supervisors_clock(os.environ).now()
    with _Owned(session, supervisors_clock(os.environ)) as owned:
        owned.take(None)
        found = step(heartbeats.load(session.folder), Found(), now).heartbeat
        made = step(found, End() if action == "stop" else Halt(), now)
        heartbeats.save(session.folder, made.heartbeat)
        assert made.reply is not None
        if not made.reply.ok:
            raise from_kind(made.reply.kind, made.reply.message)
        return Response(owned.status(), made.reply.message)


def _lost(session: Session, tail: journal.Tail) -> Lost | None:
    """What was going on when the supervisor died; the newest line it wrote anywhere is its last sign of life."""
    from loopsup.store import eventlog

    found = lost_of(tail.loop, tail.last.at if isinstance(tail.last, Record) else 0)
    if found is None:
        return None
    with contextlib.suppress(LoopsupError):  # the journal has what matters
        found = replace(found, seen_at=max(found.seen_at, eventlog.newest_at(session.folder) or 0))
    return found


def pause(session: Session) -> Response:
    """`pause` without a supervisor."""
    from loopsup.core.events import Pause

    return change(session, Pause())


def stop(session: Session) -> Response:
    """`stop` without a supervisor."""
    from loopsup.core.events import Stop

    return change(session, Stop(), tidy=True)


def resume(session: Session) -> Response:
    """`resume` of a loop that `loopsup tick` drives: it waits for its wake again, and nobody has to be there."""
    from loopsup.core.events import Resume

    return change(session, Resume(idle=False))


def materialise(session: Session) -> Response:
    """Record a deadline that passed and what a dead supervisor left, and end the agent it left."""
    with _Owned(session, supervisors_clock(os.environ)) as owned:
        owned.take(None)
        _tidy(session)
        return Response(owned.status())


def update(session: Session, policy: dict[str, Any], continuity: bool | None = None) -> Response:
    """`update` without a supervisor; `policy` has the keys of the control protocol."""
    from loopsup.core.events import Update
    from loopsup.core.misfire import from_word
    from loopsup.core.model import Auto, Fixed

    if not policy:
        return _recover(session, continuity is True)
    rhythm = policy.get("rhythm")
    response = change(
        session,
        Update(
            rhythm=None if rhythm is None else Auto() if rhythm == "auto" else Fixed(rhythm),
            min_delay_ms=policy.get("minDelayMs"),
            max_delay_ms=policy.get("maxDelayMs"),
            for_ms=policy.get("forMs"),
            max_iterations=policy.get("maxIterations"),
            misfire=None if "misfire" not in policy else from_word(policy["misfire"]),
        ),
    )
    if continuity is not None:
        _recover(session, continuity)
    return response


def _recover(session: Session, enabled: bool) -> Response:
    """Whether interrupted responses are recovered: kept in session.toml for the next supervisor."""
    from loopsup.core.overrides import TOLD
    from loopsup.store.identity import load_identity, save_identity

    with _Owned(session, supervisors_clock(os.environ)) as owned:
        owned.take(None)
        if owned.loop is None:
            raise NotFoundError("there is no loop in this session")
        identity = load_identity(session.folder)
        save_identity(session.folder, replace(identity, continuity=replace(identity.continuity, enabled=enabled)))
        return Response(owned.status(), TOLD[enabled])


def close(session: Session) -> Response:
    """`close` without a supervisor: what a dead one left is put in order, and no tick goes on with its loop."""
    from loopsup.core.events import Close

    with _Owned(session, supervisors_clock(os.environ)) as owned:
        owned.take(None)
        waited = owned.loop is not None and owned.loop.state is State.WAITING  # for a tick
        owned.take(Close())
        _tidy(session)
        told = "" if waited else " already"
        return Response(owned.status(), f"session '{session.name}' is closed{told}")


def change(session: Session, event: Event, clock: Clock | None = None, *, tidy: bool = False) -> Response:
    """Carry out one command. A refusal is raised, after what had to be recorded anyway.

    `tidy`: what a dead supervisor left (its agent, its socket) is removed too.
    """
    with _Owned(session, clock or supervisors_clock(os.environ)) as owned:
        reply = owned.take(event)
        if tidy:
            _tidy(session)
        if reply is None or not reply.ok:
            raise from_kind(reply.kind, reply.message) if reply else RefusedError("the loop cannot do that now")
        return Response(owned.status(), reply.message, reply.warnings)


def _tidy(session: Session) -> None:
    """End the agent a killed supervisor left, and remove its socket. Only while we own the session.

    One that closed in order has removed its socket: then there is nothing to look for, which would be costly.
    """
    try:
        found = session.socket.lstat()
    except OSError:
        return
    import asyncio

    from loopsup.cli.common import note
    from loopsup.shell import leftover

    asyncio.run(leftover.end(session.folder, session.identity.id, note))
    if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():
        with contextlib.suppress(OSError):
            session.socket.unlink()


class _Owned:
    """The session while we own it, instead of a supervisor."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._stack = contextlib.ExitStack()
        self._announced: list[dict[str, Any]] = []

    def __enter__(self) -> _Owned:
        from loopsup.store import eventlog

        folder = self._session.folder
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock.SessionLock.acquire(folder))
            self._journal = stack.enter_context(journal.JournalAppender.open(folder))
            self._events = stack.enter_context(eventlog.EventWriter.open(folder))
            self._stack = stack.pop_all()
        self.loop = self._journal.tail.loop
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for event in self._announced:  # only now: the hook's own process records its outcome under the lock
            _start_hook(self._session, event)

    def take(self, event: Event | None) -> Reply | None:
        """Take over the journal, then carry out `event`."""
        from loopsup.core.events import Opened
        from loopsup.core.step import advance

        now = self._clock.now()
        events: list[Event] = [Opened(turns=self._recounted(now))]
        if event is not None:
            events.append(event)
        reply: Reply | None = None
        for each in events:
            for step in advance(self.loop, each, now):
                self._record(step.cause or each, step, now)
                reply = step.reply
        return reply

    def status(self) -> dict[str, Any]:
        facts = _facts(self._session, alive=False, problem=self._journal.tail.problem())
        beat = heartbeat_status(self._session.folder)
        return status_object(facts, self.loop, self._clock.now(), heartbeat=beat)

    def _record(self, cause: Event, step: Step, now: Moment) -> None:
        """Journal first, then everything that can be seen of it."""
        before = self.loop
        if step.loop != before:
            self._journal.append(now, cause, step.loop)
            self.loop = step.loop
            missed = newly_missed(before, step.loop, cause)
            if missed is not None:
                self._tell(LOOP_MISFIRE, missed_object(missed), now)
            data = transition_data(before, step.loop, cause)
            if data is not None:
                self._tell(LOOP_TRANSITION, data, now)
        for effect in step.effects:
            self._perform(effect, now)

    def _perform(self, effect: object, now: Moment) -> None:
        from loopsup.core.effects import Announce
        from loopsup.wire.attention import attention_object

        if not isinstance(effect, Announce) or self.loop is None:
            return  # a prompt is never due without an agent: nothing here says that one is idle
        facts = _facts(self._session, alive=False, problem=None)
        event = attention_object(effect.attention, self.loop.objective, facts.for_attention())
        self._tell(LOOP_ATTENTION, event, now)
        self._announced.append(event)

    def _tell(self, kind: str, data: Mapping[str, Any], now: Moment) -> None:
        with contextlib.suppress(LoopsupError):  # the journal has it; a full disk must not hide the outcome
            self._events.append(now.wall, kind, data)

    def _recounted(self, now: Moment) -> int:
        """LLM calls of the iteration a dead supervisor left; calls that never ended get their end (D-44)."""
        from loopsup.store.eventlog import recount

        found = recount(self._session.folder, self.loop)
        for data in found.ends:
            self._events.append(now.wall, TURN_END, data, iteration=found.iteration)
        return found.turns


def _start_hook(session: Session, event: dict[str, Any]) -> None:
    """Start the attention hook, if there is one, and leave it to itself."""
    from loopsup.cli.common import note
    from loopsup.store.hooks import find_hook

    hook = find_hook()
    problem = hook.problem
    if hook.path is not None and problem is None:
        from loopsup.shell.hook import spawn_detached

        try:
            spawn_detached(session.folder, hook.path, event)
        except OSError as error:
            problem = f"{hook.path}: {error.strerror}"
    if problem is not None:  # the outcome stands, whatever becomes of the hook
        note(f"warning: the attention hook was not started: {problem}")


def _facts(session: Session, *, alive: bool, problem: str | None) -> SessionFacts:
    pid = session.owner_pid() if alive else None
    return session_facts(session.identity, alive=alive, responding=False, pid=pid, problem=problem)
