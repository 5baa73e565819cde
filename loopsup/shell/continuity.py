"""Recovery of interrupted responses: keeps the budget of `core.continuity`, and lets the agent wait.

Rules. A wait is one more deadline of the supervisor's one timer. It ends at once, and nothing comes of it, when
the run is aborted, a message comes in, recovery is switched off, or the agent gives it up itself. A run that has
its decision, or is being aborted, is never continued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopsup.clock import Clock
from loopsup.core import continuity
from loopsup.core.advice import advised_ms
from loopsup.core.classify import Boundary, Kind
from loopsup.core.continuity import NOTHING, Budget, Settings
from loopsup.core.model import AbortReason, Loop, Moment, Paused, PauseReason, Running
from loopsup.core.overrides import Overrides
from loopsup.ports import Capabilities, Doing, Interruption, Origin, Plan
from loopsup.shell.zones import zone_of
from loopsup.store.config import ContinuityConfig
from loopsup.store.limits import SharedLimits
from loopsup.wire import events as words
from loopsup.wire.status import RecoveryStatus

if TYPE_CHECKING:
    from loopsup.shell.host import AgentHost
    from loopsup.shell.run import Run

SILENT = "silent"  # the same conversation, nothing said to the model
REDELIVERED = "redelivered"  # the iteration's prompt once more, for agents that cannot do better
REQUESTS = frozenset({Origin.USER, Origin.LOOP})  # prompts with a fresh budget
LIMITS = frozenset({Kind.USAGE_LIMIT, Kind.USAGE_POLL})
PROBE_MS = 60_000  # how long others wait for the outcome of one request
AFTER_MS = 5_000  # and how much longer, so that it is written down
ANSWERS = frozenset({"stop", "toolUse"})


def settings(config: ContinuityConfig, given: Overrides) -> Settings:
    """What is in force: what a person said for this session, else the configuration, else the defaults."""
    default = Settings()
    enabled = default.enabled if config.enabled is None else config.enabled
    resumes = given.max_resumes if given.max_resumes is not None else config.max_resumes
    delay = given.stream_delay_ms if given.stream_delay_ms is not None else config.stream_delay_ms
    return Settings(
        # Broken limits are none to spend under, whoever switched it on (C-06).
        enabled=(enabled if given.enabled is None else given.enabled) and config.problem is None,
        max_resumes=default.max_resumes if resumes is None else _number(resumes),
        stream_retries=default.stream_retries if config.stream_retries is None else config.stream_retries,
        stream_delay_ms=default.stream_delay_ms if delay is None else delay,
        extended=config.guidance == "extended",
    )


def _number(value: int | str) -> int | None:
    return value if isinstance(value, int) else None


def able(capabilities: Capabilities) -> bool:
    """Whether an interrupted response can go on without a word to the model."""
    return capabilities.rewind and capabilities.continue_without_message


def leaving(loop: Loop | None) -> AbortReason | None:
    """Why a wait inside the loop's iteration has to end: nothing is in flight, so what is wanted comes at once."""
    match None if loop is None else loop.phase:
        case Running(flight):
            return None if flight.intent is None else AbortReason.USER
        case Paused(reason=PauseReason.DURATION_LIMIT):
            return AbortReason.WATCHDOG
        case _:
            return AbortReason.USER


class Recovery:
    """The recovery of one session's agent."""

    def __init__(self, host: AgentHost, clock: Clock) -> None:
        self.settings = Settings()
        self._host = host
        self._clock = clock
        self._budget = Budget()
        self._end: asyncio.Future[Plan] | None = None
        self._shown: RecoveryStatus | None = None
        self.share: SharedLimits | None = None  # where sessions of one account tell each other of its limits
        self._limit: str | None = None  # the key of the one that was met last
        self._following = False  # another session looks after it

    @property
    def waiting(self) -> bool:
        return self._budget.wait is not None

    def status(self) -> RecoveryStatus | None:
        """The recovery under way: from its beginning until the model has answered or the run is over."""
        return self._shown

    # ---- the agent asks ---------------------------------------------------------------------------

    async def interrupted(self, turn: Interruption) -> Plan:
        """The plan for a turn that ended short; NOTHING where none is to be made."""
        run = self._host.run
        if run is None or run.decided is not None or not able(self._host.slot.capabilities):
            return NOTHING
        if run.aborted is not None or self._host.rules.pending:  # a stream rule has its way
            return Plan(end=True)
        if self._host.unsaid and not (turn.boundary is Boundary.TURN and turn.stop == "length"):
            turn = replace(turn, natural=True)  # a person's message goes first
        turn = self._advised(turn)
        self._budget, plan = continuity.interrupted(self._budget, turn, self.settings, self._clock.now())
        if plan is None:
            self._meet(f"{self._host.slot.agent}-{turn.provider}")
            return await self._wait()
        if plan.resume and plan.wait_ms == 0 and not self._told(plan):
            self._tell(plan.kind or "", plan.attempt, 0, self._most(plan), None)
        if plan.notice is not None:
            self._publish(words.LOOP_NOTICE, {"message": plan.notice})
        return plan

    def again_ms(self, run: Run) -> int | None:
        """After what time a settled run of an agent that cannot go on silently is to be handed over again."""
        if run.decided is not None or run.aborted is not None or able(self._host.slot.capabilities):
            return None
        stop = run.stop if run.error is None else "error"
        turn = self._advised(Interruption(Boundary.SETTLE, stop, run.error or "", retry_after_ms=run.retry_after_ms))
        now = self._clock.now()
        self._budget, plan = continuity.again(self._budget, turn, self.settings, now)
        if plan.notice is not None:
            self._publish(words.LOOP_NOTICE, {"message": plan.notice})
        if not plan.resume or plan.kind is None:
            return None
        most = self._budget.window if plan.kind is Kind.USAGE_POLL else self._most(plan)
        wait_ms = self._shared_ms(plan, now)
        until = now.wall + wait_ms if wait_ms else None
        self._tell(plan.kind, plan.attempt, wait_ms, most, until, REDELIVERED)
        return wait_ms

    def _advised(self, turn: Interruption) -> Interruption:
        """With what the provider asks for, where more than the seed's words are understood."""
        if not self.settings.extended or turn.stop != "error":
            return turn
        now = self._clock.now()
        return replace(turn, advised_ms=advised_ms(turn.error, turn.retry_after_ms, now.wall, zone_of))

    async def _wait(self) -> Plan:
        """Until the time has come, or something ends the wait."""
        wait = self._budget.wait
        assert wait is not None
        self._resolve(NOTHING)  # whoever asked before has been forgotten by the agent
        end: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        self._end = end
        self._host.hearing.doing(Doing.BACKOFF)  # nobody is silent here
        self._tell(wait.kind, wait.attempt, wait.wait_ms, wait.of, wait.until.wall)
        try:
            return await end
        except asyncio.CancelledError:  # the agent has something better to do: input of its own, an abort
            if self._end is end:
                self._over(NOTHING)
            raise

    # ---- what ends a wait -------------------------------------------------------------------------

    def due(self, now: Moment) -> int | None:
        """Monotonic instant at which `tick` has something to do."""
        wait = self._budget.wait
        return None if wait is None else min(wait.until.mono, now.mono + max(0, wait.until.wall - now.wall))

    def tick(self, now: Moment) -> None:
        if self._not_yet(now):
            return
        self._budget, plan = continuity.elapsed(self._budget, now)
        if plan is not None:
            self._resolve(plan)

    def leave(self, why: str | None) -> None:
        """End the wait now. `why` None: the run is being aborted, and says so itself."""
        if not self.waiting:
            return
        if why is not None:
            self._publish(words.LOOP_NOTICE, {"message": f"the wait was ended: {why}"})
        self._over(Plan(end=why is None))

    def change(self, changed: Settings) -> None:
        """New settings, also in the middle of a wait."""
        self.settings = changed
        if not changed.on:
            self.leave("recovery was switched off")

    # ---- what happens to the run ------------------------------------------------------------------

    def begin(self, origin: Origin) -> None:
        if origin in REQUESTS:
            self._budget = continuity.requested(self._budget)

    def heard(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == words.TURN_END and data.get("stopReason") in ANSWERS:
            self._budget = continuity.answered(self._budget)
            self._shown = None
            if self.share is not None and self._limit is not None:
                self.share.clear(self._limit)
            self._limit = None

    def settled(self) -> None:
        self._over(Plan(end=True))
        self._budget = continuity.settled(self._budget)

    # ---- limits of one account --------------------------------------------------------------------

    def _meet(self, key: str) -> None:
        """A usage limit: where another session waits for its end already, that one asks first."""
        wait = self._budget.wait
        if self.share is None or wait is None or wait.kind not in LIMITS:
            return
        self._limit = key
        self._follow(self.share.take(key, wait.until.wall, self._clock.now().wall, wait.until.wall))

    def _shared_ms(self, plan: Plan, now: Moment) -> int:
        """The wait of a redelivery; where another session looks after the limit already, until that one has asked."""
        if self.share is None or plan.kind not in LIMITS:
            return plan.wait_ms
        self._limit = f"{self._host.slot.agent}-"  # whose provider it is such an agent does not say
        own = now.wall + plan.wait_ms
        until = self.share.take(self._limit, own, now.wall, own)
        self._following = until is not None
        return plan.wait_ms if until is None else until + AFTER_MS - now.wall

    def held_ms(self) -> int | None:
        """How much longer a redelivery has to wait for another session's answer; None: it is ours to ask now."""
        if self.share is None or self._limit is None:
            return None
        if self._following and self.share.is_open(self._limit):
            return None
        now = self._clock.now()
        until = self.share.take(self._limit, now.wall + PROBE_MS, now.wall)
        self._following = until is not None
        if until is not None and self._shown is not None:
            self._shown = replace(self._shown, until=until + AFTER_MS)
        return None if until is None else until + AFTER_MS - now.wall

    def _not_yet(self, now: Moment) -> bool:
        """The time has come, but another session asks right now, or found the limit still there."""
        wait = self._budget.wait
        if self.share is None or self._limit is None or wait is None or not wait.until.reached(now):
            return False
        if self._following and self.share.is_open(self._limit):
            return False
        return self._follow(self.share.take(self._limit, now.wall + PROBE_MS, now.wall))

    def _follow(self, until: int | None) -> bool:
        self._following = until is not None
        if until is not None:
            now = self._clock.now()
            self._budget = continuity.postponed(self._budget, now.plus(until + AFTER_MS - now.wall))
            if self._shown is not None:
                self._shown = replace(self._shown, until=until + AFTER_MS)
        return self._following

    # ---- inside -----------------------------------------------------------------------------------

    def _over(self, plan: Plan) -> None:
        self._budget = continuity.cancelled(self._budget)
        self._shown = None
        self._resolve(plan)

    def _resolve(self, plan: Plan) -> None:
        end, self._end = self._end, None
        if self._shown is not None:
            self._shown = replace(self._shown, until=None)
        if end is not None and not end.done():
            self._host.hearing.doing(Doing.NOTHING)
            end.set_result(plan)

    def _told(self, plan: Plan) -> bool:
        """The wait before it was shown already."""
        return self._shown is not None and (self._shown.kind, self._shown.attempt) == (plan.kind, plan.attempt)

    def _most(self, plan: Plan) -> int | None:
        return self.settings.stream_retries if plan.kind in ("stream", "empty") else self.settings.max_resumes

    def _tell(
        self, kind: str, attempt: int, wait_ms: int, of: int | None, until: int | None, mode: str = SILENT
    ) -> None:
        self._shown = RecoveryStatus(str(kind), mode, attempt, of, until)
        self._publish(words.CONTINUITY_RECOVERY, {"kind": str(kind), "attempt": attempt, "waitMs": wait_ms})
        self._host.desk.ready()

    def _publish(self, kind: str, data: Mapping[str, Any]) -> None:
        run = self._host.run
        self._host.desk.publish(kind, data, iteration=None if run is None else run.iteration)
