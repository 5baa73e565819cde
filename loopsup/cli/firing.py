"""Firing what is due: a supervisor a session, some at a time, the longest overdue first.

Rules: the lock of a session says who may fire it; whoever finds it held asks the holder and goes on. Leaving
(Ctrl-C) ends no iteration; SIGTERM is passed on, so that in a container every session closes in good order.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loopsup import offline
from loopsup.cli import acting, launch, selection
from loopsup.cli.common import note
from loopsup.cli.selection import Session
from loopsup.clock import SystemClock
from loopsup.core.model import Loop, Paused
from loopsup.core.reasons import short
from loopsup.core.ticking import Need, due_at, need
from loopsup.errors import EXIT_DONE, LoopsupError, NotFoundError, RefusedError
from loopsup.wire.control import ANSWER_TIMEOUT_S, Launch, Request
from loopsup.wire.times import instant

TICK = Request("tick")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one session. `outcome`: fired, tidied, left (somebody is at it, or --jobs), failed."""

    name: str
    outcome: str
    message: str
    exit: int = EXIT_DONE

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "outcome": self.outcome, "message": self.message}


@dataclass(frozen=True, slots=True)
class _Due:
    session: Session
    loop: Loop


def fire(names: Iterable[str], *, jobs: int, detach: bool, tell: Callable[[str], None] | None) -> list[Outcome]:
    """Fire what is due in these sessions; `tell` gets a line as soon as one is done with."""
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if outcome.exit != EXIT_DONE:
            note(f"{outcome.name}: {outcome.message}")
        elif tell is not None:
            tell(f"{outcome.name}: {outcome.message}")

    found = [_seen(name) for name in names]
    for outcome in found:
        if isinstance(outcome, Outcome):
            done(outcome)
    due = sorted((each for each in found if isinstance(each, _Due)), key=lambda each: due_at(each.loop))
    if detach:
        for each in due[jobs:]:
            done(Outcome(each.session.name, "left", f"due, and left for the next tick (--jobs {jobs})"))
        due = due[:jobs]
    _Crew(jobs, detach).run(due, done)
    return outcomes


def _seen(name: str) -> _Due | Outcome | None:
    try:
        return _look(name)
    except NotFoundError:  # removed in between
        return None
    except RefusedError as error:  # another tick, or a command, is at it
        return Outcome(name, "left", error.message)
    except LoopsupError as error:
        return Outcome(name, "failed", error.message, error.exit)


def _look(name: str) -> _Due | Outcome | None:
    """What one session needs; small things are done at once."""
    session = selection.named(name)
    loop = session.loop()
    wanted = need(loop, SystemClock().now())
    if loop is None or wanted is Need.NOTHING:
        return None
    if session.alive():
        return _asked(session)
    if wanted is Need.FIRE:
        return _Due(session, loop)
    offline.materialise(session)
    return Outcome(name, "tidied", _state(session))


def _asked(session: Session) -> Outcome | None:
    """Its owner fires it, if it is one that can."""
    try:
        response = acting.ask(session, TICK, ANSWER_TIMEOUT_S)
    except RefusedError as error:
        return Outcome(session.name, "left", error.message)
    if response is None:  # it has just ended; what it left is for the next tick
        return None
    if response.message == "fired":
        return Outcome(session.name, "fired", "fired in the session that is open")
    return Outcome(session.name, "left", f"{response.message} (process {session.owner_pid() or 'unknown'} is at it)")


class _Crew:
    """Threads that each start one supervisor and wait for it."""

    def __init__(self, jobs: int, detach: bool) -> None:
        self._jobs, self._detach = jobs, detach
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._due: queue.SimpleQueue[_Due] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self._ending = False

    def run(self, due: list[_Due], done: Callable[[Outcome], None]) -> None:
        """Until all of them are done with. Ctrl-C leaves them to themselves."""
        for each in due:
            self._due.put(each)
        before = signal.signal(signal.SIGTERM, lambda *_: self._end())
        try:
            for _ in range(min(self._jobs, len(due))):
                threading.Thread(target=self._work, daemon=True).start()
            for _ in due:
                outcome = self._done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                done(outcome)
        except KeyboardInterrupt:
            note("left; the iterations that have begun go on")
            raise
        finally:
            signal.signal(signal.SIGTERM, before)

    def _end(self) -> None:
        """Close what was begun, begin nothing more."""
        self._ending = True
        for child in list(self._children.values()):
            child.send_signal(signal.SIGTERM)

    def _work(self) -> None:
        while True:
            try:
                each = self._due.get_nowait()
            except queue.Empty:
                return
            name = each.session.name
            try:
                outcome = self._fire(each.session)
            except RefusedError as error:  # another tick was faster
                outcome = Outcome(name, "left", error.message)
            except LoopsupError as error:
                outcome = Outcome(name, "failed", error.message, error.exit)
            except BaseException as error:
                self._done.put(error)
                return
            self._done.put(outcome)

    def _fire(self, session: Session) -> Outcome:
        if self._ending:
            return Outcome(session.name, "left", "due, and left for the next tick")
        begun = launch.begin(Launch(session.name, "reopen", TICK), session.folder)
        response = begun.answer(leave=self._detach)
        if response.message != "fired":
            if not self._detach:
                begun.child.wait()
            return Outcome(session.name, "left", response.message)
        if self._detach:
            return Outcome(session.name, "fired", "an iteration has begun")
        self._children[session.name] = begun.child
        if self._ending:
            begun.child.send_signal(signal.SIGTERM)
        begun.child.wait()
        del self._children[session.name]
        return Outcome(session.name, "fired", _state(session))


def _state(session: Session) -> str:
    """How the loop stands now, in a few words."""
    loop = session.refreshed().truth()
    if loop is None:
        return "it has no loop any more"
    count = f"iteration {loop.iteration_count} of {loop.policy.max_iterations}"
    if isinstance(loop.phase, Paused):
        return f"{count}; paused, {short(loop.phase.reason.value)}"
    due = getattr(loop.phase, "due", None)
    return f"{count}; {loop.state.value}" + ("" if due is None else f" until {instant(due.wall)}")
