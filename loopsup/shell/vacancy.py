"""When the session closes by itself: the question of `core/reaper.py`, asked at each tick of the supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopsup.core import reaper
from loopsup.core.model import Moment, State

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

ACTIVE = frozenset({State.WAITING, State.QUEUED, State.RUNNING})


class Vacancy:
    """`hold_open`: never by itself. `ends_with_loop`: as soon as the loop is not active any more, then only.

    `fleeting`: it serves a loop that `loopsup tick` drives, and goes as soon as nothing is in hand.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self.hold_open = False
        self.ends_with_loop = False
        self.fleeting = False
        self._supervisor = supervisor
        self._since: int | None = None  # monotonic ms

    def due(self) -> int | None:
        """The monotonic instant at which `tick` may have something to do."""
        return None if self._since is None else self._since + reaper.VACANT_GRACE_MS

    def tick(self, now: Moment) -> None:
        supervisor = self._supervisor
        loop = supervisor.loop
        if self.ends_with_loop:
            if loop is not None and loop.state not in ACTIVE:
                supervisor.ask_to_close("loop_ended")
            return
        if self.fleeting and not supervisor.pulse.beats:
            at_it = loop is not None and loop.state in (State.QUEUED, State.RUNNING)
            if not at_it and not supervisor.host.working:
                supervisor.ask_to_close("tick")
            return
        if (
            self.hold_open
            or supervisor.pulse.beats
            or not reaper.vacant(loop, supervisor.bus.followers, supervisor.host.working)
        ):
            self._since = None
        elif self._since is None:
            self._since = now.mono
        elif now.mono - self._since >= reaper.VACANT_GRACE_MS:
            supervisor.ask_to_close("idle")
