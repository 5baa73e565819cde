"""When the session closes by itself: the question of `core/reaper.py`, asked by three reapers.

Clients are counted at each tick rather than told, so no lost report of one can keep a session. All times are awake
time (monotonic): what is left of a grace when the machine falls asleep is granted again after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopsup.core import reaper
from loopsup.core.model import AbortReason, Moment, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopsup.shell.supervisor import Supervisor

ACTIVE = frozenset({State.WAITING, State.QUEUED, State.RUNNING})


class Vacancy:
    """`hold_open`: never by itself. `ends_with_loop`: as soon as the loop is not active any more, then only.

    `fleeting`: it serves a loop that `loopsup tick` drives, and goes as soon as nothing is in hand.
    `maintain` is called every `MAINTENANCE_MS`, the first time at the first tick.
    """

    def __init__(self, supervisor: Supervisor, settings: reaper.Reaping | None = None) -> None:
        self.hold_open = False
        self.ends_with_loop = False
        self.fleeting = False
        self.settings = settings or reaper.Reaping()
        self.maintain: Callable[[], None] = lambda: None
        self._supervisor = supervisor
        self._left: int | None = None  # since when nobody follows; all of these are monotonic ms
        self._check: int | None = None  # when the orphan reaper looks next
        self._interrupted: int | None = None  # when it ended a turn nobody watched
        self._maintained: int | None = None
        self._pinned = False

    # ---- what others ask ----------------------------------------------------------------------------

    @property
    def settling(self) -> bool:
        """A turn was ended because nobody was there; when it has settled the session closes."""
        return self._interrupted is not None

    def present(self) -> None:
        """A person acts on the session: it is wanted again, with a whole new grace (H-25)."""
        if self._interrupted is not None:
            self._interrupted = self._left = self._check = None

    def needed(self) -> str | None:
        """Why it must not close now because others want its place; None: it may."""
        supervisor = self._supervisor
        if self.hold_open or self.ends_with_loop:
            return "it was started with --foreground"
        if supervisor.bus.followers:
            return "somebody follows it"
        return self._needed(supervisor.clock.now())

    def due(self) -> int | None:
        """The monotonic instant at which `tick` may have something to do."""
        if self._interrupted is not None:
            return self._interrupted + reaper.SETTLE_MS
        return self._check

    # ---- the tick -----------------------------------------------------------------------------------

    def tick(self, now: Moment) -> None:
        supervisor = self._supervisor
        if self.ends_with_loop:
            if supervisor.loop is not None and supervisor.loop.state not in ACTIVE:
                supervisor.ask_to_close("loop_ended")
            return
        if self.fleeting and not supervisor.pulse.beats:
            under_way = supervisor.loop is not None and supervisor.loop.state in (State.QUEUED, State.RUNNING)
            if not under_way and not supervisor.host.working:
                supervisor.ask_to_close("tick")
            return
        self._maintain(now)
        if self.hold_open:
            return
        self._count(now)
        if self._interrupted is not None:
            self._settle(now, self._interrupted)
        elif self._check is not None and now.mono >= self._check:
            self._look(now)
        elif now.mono - supervisor.bus.active_at >= self.settings.idle_ttl_ms and self._needed(now) is None:
            supervisor.ask_to_close("idle_ttl")

    def _maintain(self, now: Moment) -> None:
        if self._maintained is None or now.mono - self._maintained >= reaper.MAINTENANCE_MS:
            self._maintained = now.mono
            self._arm(now)
            self.maintain()

    def _count(self, now: Moment) -> None:
        """Somebody came or left, or the loop let the session go."""
        pinned = reaper.pins(self._supervisor.loop, now, beating=self._supervisor.pulse.beats)
        released, self._pinned = self._pinned and not pinned, pinned
        if self._supervisor.bus.followers:
            self._left = self._check = None
        elif self._left is None or released:
            self._left = now.mono if self._left is None else self._left
            self._check = None
            self._arm(now)

    def _arm(self, now: Moment) -> None:
        """Look when the grace is over; where it is over already, at once (D-32)."""
        if self._left is not None and self._check is None and self.settings.grace_ms is not None:
            self._check = max(now.mono, self._left + self.settings.grace_ms)

    def _look(self, now: Moment) -> None:
        """The grace is over. Who is exempt is looked at again: after a grace while it works, else when released."""
        self._check = None
        if self._needed(now) is None:
            self._supervisor.ask_to_close("idle")
        elif self._supervisor.host.quiet(now, reaper.QUIET_MS):
            self._interrupted = now.mono
            self._supervisor.log("a turn nobody watches has been silent for too long: it is ended, and the session")
            self._supervisor.spawn(self._interrupt())
        elif not self._pinned or self._supervisor.host.working:
            self._check = now.mono + (self.settings.grace_ms or reaper.ORPHAN_GRACE_MS)

    async def _interrupt(self) -> None:
        run = self._supervisor.host.run
        if run is not None:
            await self._supervisor.host.end(run, AbortReason.CLIENT_GONE)

    def _settle(self, now: Moment, since: int) -> None:
        """The turn it ended has settled, or never will."""
        if self._needed(now) is None or now.mono - since >= reaper.SETTLE_MS:
            self._supervisor.ask_to_close("client_gone")

    def _needed(self, now: Moment) -> str | None:
        supervisor = self._supervisor
        working, interrupted = supervisor.host.working, self._interrupted is not None
        beating = supervisor.pulse.beats
        return reaper.needed(supervisor.loop, now, working=working, interrupted=interrupted, beating=beating)
