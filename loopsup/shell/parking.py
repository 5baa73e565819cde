"""`start --park`: the agent is closed between wakes that are far apart, and resumed by its id for the next one.

Rules. Nothing may be lost by it: it happens only while the loop waits, the agent is idle and has been so for a
while, no question is open, and nothing runs below the agent that was not there when it came up. What is started
later may be work in the background: then the agent stays, which is told once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from loopsup.core.limits import MINUTE, PARKING_FROM_MS, SECOND
from loopsup.core.model import Moment, Waiting
from loopsup.shell import leftover
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

SETTLING_MS = 2 * SECOND  # of a wait may have passed before the agent is seen to be idle: exactly 10 minutes count
QUIET_MS = 5 * SECOND  # an agent that goes on by itself after its answer does so within a second or two
LOOK_AGAIN_MS = MINUTE  # while something runs in the background; a look costs some milliseconds


class Parking:
    """`parked`: the agent is closed and waits for the wake."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.parked = False
        self._supervisor = supervisor
        self._own: set[psutil.Process] = set()
        self._not_before: int | None = None  # monotonic ms; None while the agent is not free
        self._told = False

    def came_up(self) -> None:
        """The agent is there again: what runs below it now is its own."""
        self.parked = self._told = False
        self._not_before = None
        self._own = self._below()

    def begin(self) -> None:
        """Another loop begins: what keeps the agent is told anew."""
        self._told = False

    def due(self) -> int | None:
        """The next monotonic instant at which `tick` has something to do."""
        return self._not_before

    def tick(self, now: Moment) -> None:
        if not self._free(now):
            self._not_before = None
        elif self._not_before is None:
            self._not_before = now.mono + QUIET_MS
        elif now.mono >= self._not_before:
            self._not_before = now.mono + LOOK_AGAIN_MS
            self._park()

    def _free(self, now: Moment) -> bool:
        supervisor = self._supervisor
        if not supervisor.identity.park or not supervisor.host.idle or supervisor.host.questions.pending is not None:
            return False
        match supervisor.loop.phase if supervisor.loop is not None else None:
            case Waiting(due):
                spent = SETTLING_MS + (0 if self._not_before is None else QUIET_MS)
                return min(due.wall - now.wall, due.mono - now.mono) + spent >= PARKING_FROM_MS
            case _:
                return False

    def _park(self) -> None:
        supervisor = self._supervisor
        busy = self._below() - self._own
        if busy:
            names = ", ".join(str(process.pid) for process in sorted(busy, key=lambda it: it.pid))
            self._tell(
                f"the agent is not closed until the next wake: it has work in the background (process {names})"
            )
            return
        self.parked = True
        supervisor.publish(words.LOOP_NOTICE, {"message": "the agent is closed until the next wake (--park)"})
        supervisor.log("the agent is closed until the next wake (--park)")
        supervisor.spawn(supervisor.host.slot.empty())
        supervisor.touch()

    def _tell(self, message: str) -> None:
        if not self._told:
            self._told = True
            self._supervisor.publish(words.LOOP_NOTICE, {"message": message})
            self._supervisor.log(message)

    def _below(self) -> set[psutil.Process]:
        """What runs for the agent, itself included, wherever it went."""
        found = leftover.marked(self._supervisor.identity.id) | leftover.descendants(self._supervisor.host.slot.pid)
        return {process for process in found if leftover.alive(process)}
