"""A simulated day in milliseconds: the pure core driven on virtual clocks by a scripted agent.

Rules: the scenario does what a supervisor does and nothing more. It delivers events through `advance`, keeps
a record of every changed loop before it performs the effects, holds one timer (`next_deadline`), starts the
agent when `wants_agent` says so, and tells the core `idle` truthfully.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from loopsup.core import envelope
from loopsup.core.effects import Announce, Effect, HandOver, Reply
from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    BranchMoved,
    Close,
    ConversationForking,
    DecisionCalled,
    Event,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
    Opened,
    Pause,
    Resume,
    Start,
    Stop,
    Ticked,
    Update,
)
from loopsup.core.misfire import Misfire
from loopsup.core.model import (
    AbortReason,
    Attention,
    Driver,
    Flight,
    Loop,
    Moment,
    Paused,
    Policy,
    PromptKind,
    Stamp,
    State,
    Waiting,
)
from loopsup.core.step import advance, next_deadline, wants_agent
from tests.support.script import T0, Prompt, Record, Turn, View, ms, policy_of, rhythm_of, says

MOST_TICKS = 50  # a timer that is due this often at one instant never moves on
Watcher = Callable[[Loop | None, Event, Moment, Loop | None, tuple[Effect, ...]], None]


@dataclass
class Scenario:
    """One session. `script` is used up prompt by prompt, then every prompt gets `default`."""

    script: deque[Turn] = field(default_factory=deque)
    default: Turn = field(default_factory=lambda: says("continue"))
    language: str = "en"
    watch: Watcher | None = None
    now: Moment = T0
    loop: Loop | None = None
    journal: list[Record] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    announced: list[Attention] = field(default_factory=list)
    verdicts: list[Reply] = field(default_factory=list)
    owned: bool = True
    up: bool = True
    start_failures: deque[str] = field(default_factory=deque)
    starts: int = 0
    _busy: bool = False
    _users: deque[int] = field(default_factory=deque)
    _agenda: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _inbox: deque[Event] = field(default_factory=deque)
    _count: int = 0
    _turn: tuple[Stamp, Turn] | None = None
    _depth: int = 0

    @staticmethod
    def scripted(*turns: Turn, default: Turn | None = None) -> Scenario:
        return Scenario(deque(turns), default or says("continue"))

    # ---- time ---------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Wall milliseconds since T0."""
        return self.now.wall - T0.wall

    def run_until(self, offset: str | int) -> Scenario:
        """Live until this wall offset, with everything that is due there."""
        return self.run_for(T0.wall + ms(offset) - self.now.wall)

    def run_before(self, offset: str | int) -> Scenario:
        """Stand at this instant before anything due exactly there has happened."""
        self.run_until(ms(offset) - 1)
        self._move(1)
        return self

    def run_for(self, span: str | int) -> Scenario:
        end = self.now.mono + ms(span)
        assert end >= self.now.mono, "a scenario runs forwards; the wall clock may jump (set_wall)"
        while (instant := self._next_instant()) is not None and instant <= end:
            self._move(max(0, instant - self.now.mono))
            self._fire()
        self._move(max(0, end - self.now.mono))
        return self

    def suspend(self, span: str | int) -> Scenario:
        """The host sleeps: only the wall clock goes on; after the wake-up both are read again."""
        return self.set_wall(ms(span))

    def set_wall(self, by: int) -> Scenario:
        self.now = Moment(self.now.wall + by, self.now.mono)
        self._fire()
        return self

    def _move(self, span: int) -> None:
        self.now = self.now.plus(span)

    def _next_instant(self) -> int | None:
        instants = [self._agenda[0][0]] if self._agenda else []
        if self.owned and self.loop is not None:
            due = next_deadline(self.loop)
            if due.wall is not None:
                instants.append(self.now.mono + max(0, due.wall - self.now.wall))
            if due.mono is not None:
                instants.append(due.mono)
        return min(instants, default=None)

    def _fire(self) -> None:
        """Everything due at this instant: the agent's doings first, then the one timer."""
        while self._agenda and self._agenda[0][0] <= self.now.mono:
            heapq.heappop(self._agenda)[2]()
        ticks = 0
        while self.owned and self.loop is not None and self._due():
            self.deliver(Ticked(idle=self.idle))
            ticks += 1
            assert ticks < MOST_TICKS, f"the timer is due for ever at +{self.at}: {self.loop.phase}"
            if self._agenda and self._agenda[0][0] <= self.now.mono:
                return  # an instant answer of the agent comes before the next look at the clock

    def _due(self) -> bool:
        assert self.loop is not None
        due = next_deadline(self.loop)
        wall = due.wall is not None and self.now.wall >= due.wall
        return wall or (due.mono is not None and self.now.mono >= due.mono)

    # ---- the supervisor -----------------------------------------------------------------------------

    def deliver(self, event: Event) -> Reply | None:
        """One event through `advance`: journal what changed, then perform."""
        reply = None
        steps = advance(self.loop, event, self.now)
        assert 1 <= len(steps) <= 2
        for step in steps:
            cause = step.cause
            assert cause is not None
            if self.watch is not None:
                self.watch(self.loop, cause, self.now, step.loop, step.effects)
            if step.loop != self.loop:
                self.journal.append(Record(cause, self.now, step.loop))
            self.loop = step.loop
            for effect in step.effects:
                self._perform(effect)
            reply = step.reply
        if self._depth == 0:
            self._depth += 1
            while self._inbox:
                self.deliver(self._inbox.popleft())
            self._depth -= 1
            self._provide_agent()
        return reply

    def _provide_agent(self) -> None:
        if not (self.owned and wants_agent(self.loop, self.now)):
            return
        if not self.up:
            self.starts += 1
            if self.start_failures:
                self.deliver(AgentStartFailed(self.start_failures.popleft()))
                return
            self.up = True
        if self.idle:
            before = self.loop
            self.deliver(Ticked(idle=True))
            assert self.loop != before, f"a prompt is due, the agent is idle, nothing happens: {before}"

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Announce(attention):
                self.announced.append(attention)
            case HandOver(stamp, kind):
                assert self.idle, f"handed over to an agent that cannot take it: {effect}"
                self._take(stamp, kind)

    def _take(self, stamp: Stamp, kind: PromptKind) -> None:
        assert self.loop is not None
        turn = self.script.popleft() if self.script else self.default
        if kind is PromptKind.ITERATION:
            text = envelope.iteration(self.loop, self.now, self.language)
        else:
            text = envelope.reminder(self.loop, self.language)
        self.prompts.append(Prompt(self.at, kind, stamp, text, taken=turn.refused is None))
        if turn.refused is not None:
            self._inbox.append(HandoverRefused(stamp, turn.refused, busy=turn.busy))
            return
        self._inbox.append(HandoverAccepted(stamp))
        self._busy, self._turn = True, (stamp, turn)
        if turn.decides_after is not None:
            self._later(turn.decides_after, lambda: self._decide(stamp, turn))
        self._later(turn.lasts, lambda: self._end(stamp, turn))

    # ---- the agent ----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self.up and not self._busy and not self._users

    def _later(self, span: int, happening: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now.mono + span, self._count, happening))

    def _decide(self, stamp: Stamp, turn: Turn) -> None:
        for arguments in turn.calls:
            self.control(arguments, stamp)

    def control(self, arguments: object, stamp: Stamp | None) -> Reply:
        """`loop_control` is called; returns what the model reads."""
        verdict = self.deliver(DecisionCalled(stamp, arguments))
        assert verdict is not None, "a loop_control call must be answered"
        self.verdicts.append(verdict)
        return verdict

    def _end(self, stamp: Stamp, turn: Turn) -> None:
        if turn.decides_after is None:
            self._decide(stamp, turn)
        if turn.dies is not None:
            self.lose_agent(turn.dies, turn.turns)
        else:
            self._settle(stamp, turn.turns, turn.aborted, turn.error)

    def _settle(self, stamp: Stamp, turns: int, aborted: AbortReason | None, error: str | None) -> None:
        self._busy, self._turn = False, None
        self.deliver(IterationSettled(stamp, idle=self.idle, turns=turns, aborted=aborted, error=error))
        self._next_user()

    def _next_user(self) -> None:
        if self.up and self._users and not self._busy:
            self._busy = True
            self._later(self._users.popleft(), self._user_done)

    def _user_done(self) -> None:
        self._busy = False
        if self._users:
            self._next_user()
        elif self.owned:
            self.deliver(Ticked(idle=True))

    def user_turn(self, lasts: str | int, at: str | None = None) -> Scenario:
        """A message of the user that keeps the agent busy; it goes before any prompt of the loop."""
        if at is not None:
            self.run_before(at)
        self._users.append(ms(lasts))
        self._next_user()
        return self

    def abort(self, reason: AbortReason = AbortReason.USER) -> Scenario:
        """The response in flight is ended from outside."""
        if self._turn is None:
            return self
        stamp, turn = self._turn
        self._agenda.clear()
        self._settle(stamp, turn.turns, reason, None)
        return self

    def lose_agent(self, reason: str = "exit status 9", turns: int = 0) -> Scenario:
        self._forget_agent()
        self.up = False
        self.deliver(AgentLost(reason, turns))
        return self

    def _forget_agent(self) -> None:
        self._agenda.clear()
        self._inbox.clear()
        self._users.clear()
        self._busy, self._turn = False, None

    # ---- commands -----------------------------------------------------------------------------------

    def start(
        self,
        objective: str = "obj",
        *,
        after: str | None = None,
        policy: Policy | None = None,
        driver: Driver = Driver.RESIDENT,
    ) -> Reply:
        self._count += 1
        wanted = policy or policy_of()
        after_ms = None if after is None else ms(after)
        return self._command(Start(f"loop-{self._count}", objective, wanted, after_ms, self.idle, driver))

    def pause(self) -> Reply:
        return self._command(Pause())

    def resume(self) -> Reply:
        return self._command(Resume(idle=self.idle))

    def stop(self) -> Reply:
        return self._command(Stop())

    def update(
        self,
        *,
        every: str | None = None,
        for_: str | None = None,
        max_iterations: int | None = None,
        min_delay: str | None = None,
        max_delay: str | None = None,
        misfire: Misfire | None = None,
    ) -> Reply:
        return self._command(
            Update(
                None if every is None else rhythm_of(every),
                None if min_delay is None else ms(min_delay),
                None if max_delay is None else ms(max_delay),
                None if for_ is None else ms(for_),
                max_iterations,
                misfire,
            )
        )

    def _command(self, command: Event) -> Reply:
        before, records = self.loop, len(self.journal)
        reply = self.deliver(command)
        assert reply is not None, "a command must be answered"
        expired = before is not None and not before.deadline_expired and self.live.deadline_expired
        if not reply.ok and not expired:  # a refused `resume` may be what materialises the deadline (L-36)
            assert (self.loop, len(self.journal)) == (before, records), "a refused command changes nothing"
        return reply

    # ---- the life of the session ----------------------------------------------------------------------

    def close(self) -> Scenario:
        self._forget_agent()
        self.up = False
        self.deliver(Close(turns=0))
        self.owned = False
        return self

    def go(self) -> Scenario:
        """The supervisor of a loop that ticks drive ends by itself, or the machine is shut down."""
        self._forget_agent()
        self.up = False
        self.deliver(Close(leaving=True))
        self.owned = False
        return self

    def tick(self) -> Scenario:
        """`loopsup tick`: takes the session if nobody has it; its supervisor goes when nothing is in hand."""
        if not self.owned:
            self.open()
        self.fire()
        while self.owned and self.loop is not None and self.loop.state in (State.QUEUED, State.RUNNING):
            instant = self._next_instant()
            assert instant is not None, f"the iteration never settles: {self.loop.phase}"
            self.run_for(max(0, instant - self.now.mono))
        return self.go()

    def fire(self) -> Scenario:
        """A tick comes to the supervisor that is there."""
        self.deliver(Ticked(idle=self.idle, by=Driver.TICK))
        return self

    def crash(self) -> Scenario:
        """The supervisor and its agent are killed; only the journal is left."""
        self._forget_agent()
        self.up = self.owned = False
        self.loop = self.journal[-1].loop if self.journal else None
        return self

    def open(self, *, turns: int = 0, reload: bool = False) -> Scenario:
        self.owned = True
        self.deliver(Opened(reload=reload, turns=turns))
        return self

    def leave(self) -> Scenario:
        """The first half of a reload: the supervisor is away, nothing is written."""
        self._forget_agent()
        self.up = self.owned = False
        return self

    def fork(self) -> Scenario:
        self.deliver(ConversationForking())
        return self

    def branch(self, loop: Loop | None) -> Scenario:
        self.deliver(BranchMoved(loop))
        return self

    # ---- looking ------------------------------------------------------------------------------------

    @property
    def live(self) -> Loop:
        assert self.loop is not None
        return self.loop

    @property
    def flight(self) -> Flight:
        flight = self.live.flight
        assert flight is not None
        return flight

    @property
    def events(self) -> tuple[str, ...]:
        return tuple(str(attention.status) for attention in self.announced)

    @property
    def iterations(self) -> list[int]:
        """Wall offsets of the envelopes the agent took."""
        return [p.at for p in self.prompts if p.kind is PromptKind.ITERATION and p.taken]

    @property
    def sent(self) -> int:
        return sum(p.taken for p in self.prompts)

    def view(self) -> View:
        loop = self.live
        armed = isinstance(loop.phase, Waiting) and next_deadline(loop).mono is not None
        return View(
            str(loop.state),
            str(loop.phase.reason) if isinstance(loop.phase, Paused) else None,
            loop.iteration_count,
            loop.policy.max_iterations,
            loop.protocol_retry_count,
            self.events,
            int(loop.state is State.QUEUED),
            int(armed and self.owned),
        )

    def without_flight(self) -> Loop:
        """The loop with its phase taken out: what every close, reload and crash must keep."""
        return replace(self.live, phase=Waiting(Moment(0, 0)))
