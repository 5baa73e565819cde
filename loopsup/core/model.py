"""What a loop is: values only.

Two rules (every module of `core/` keeps them): everything that decides what happens to a loop lives
in `core/`; nothing in `core/` knows a clock, a file, a process or an agent. Times are integers in
milliseconds: wall-clock instants since the Unix epoch, monotonic instants since an arbitrary zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loopsup.core.limits import (
    DEFAULT_FOR_MS,
    DEFAULT_MAX_DELAY_MS,
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_MIN_DELAY_MS,
)
from loopsup.core.misfire import ONCE, Held, Misfire, Missed


class State(StrEnum):
    """The seven states of a loop, as `status` prints them."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.STOPPED})


class PauseReason(StrEnum):
    """Why a loop is paused. The first four want a person's attention and reach the hook."""

    BLOCKED = "blocked"
    DURATION_LIMIT = "duration_limit"
    ITERATION_LIMIT = "iteration_limit"
    PROTOCOL_ERROR = "protocol_error"
    USER = "user"
    SESSION_CLOSED = "session_closed"
    FORK = "fork"
    INTERRUPTED = "interrupted"
    SUPERVISOR_LOST = "supervisor_lost"
    UNKNOWN_VERSION = "unknown_version"


class AttentionStatus(StrEnum):
    """The flat enum of attention events; no seventh value is ever sent."""

    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    DURATION_LIMIT = "duration_limit"
    ITERATION_LIMIT = "iteration_limit"
    PROTOCOL_ERROR = "protocol_error"


class Verb(StrEnum):
    """What `loop_control` can say."""

    CONTINUE = "continue"
    COMPLETE = "complete"
    FAIL = "fail"
    BLOCK = "block"


class Intent(StrEnum):
    """What was asked while an iteration runs; applied when it settles."""

    PAUSE = "pause"
    FORK = "fork"  # shown as "pause"; the pause reason will be `fork`
    STOP = "stop"


class PromptKind(StrEnum):
    """Which of the loop's prompts is in flight."""

    ITERATION = "iteration"
    REMINDER = "reminder"
    AGAIN = "again"  # the envelope of an iteration whose response was interrupted, once more


class Delivery(StrEnum):
    """How far the prompt in flight got. `SENT` without `ACCEPTED` is never sent again by itself."""

    PENDING = "pending"
    SENT = "sent"
    ACCEPTED = "accepted"


class Driver(StrEnum):
    """Who fires the wakes of a loop: exactly one of the two, for as long as the loop lives (H-02 to H-04)."""

    RESIDENT = "resident"  # the supervisor of its session, which waits for them
    TICK = "tick"  # `loopsup tick`, run by cron or a timer: between two iterations nobody waits


class AbortReason(StrEnum):
    """Why a response was ended from outside."""

    USER = "user"
    WATCHDOG = "watchdog"
    DECISION = "decision"
    TTSR = "ttsr"
    CLIENT_GONE = "client_gone"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of both clocks, or an instant to be reached on either (milliseconds)."""

    wall: int
    mono: int

    def plus(self, ms: int) -> Moment:
        return Moment(self.wall + ms, self.mono + ms)

    def reached(self, now: Moment) -> bool:
        """True once either clock is there: a wall clock set back cannot postpone it."""
        return now.wall >= self.wall or now.mono >= self.mono


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every `every_ms`, counted from the end of an iteration."""

    every_ms: int


@dataclass(frozen=True, slots=True)
class Auto:
    """The agent names the next delay with each `continue`."""


Rhythm = Fixed | Auto


@dataclass(frozen=True, slots=True)
class Policy:
    """What `update` may change."""

    rhythm: Rhythm
    min_delay_ms: int = DEFAULT_MIN_DELAY_MS
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS
    for_ms: int = DEFAULT_FOR_MS
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    misfire: Misfire = ONCE


@dataclass(frozen=True, slots=True)
class Decision:
    """A valid, accepted `loop_control` call. `at` is the wall instant of acceptance."""

    verb: Verb
    summary: str
    evidence: str
    next_delay_ms: int | None
    iteration: int
    at: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a report from an agent belongs to; a report with a stale stamp changes nothing."""

    loop_id: str
    iteration: int
    generation: int


@dataclass(frozen=True, slots=True)
class Flight:
    """One iteration under way. Rhythm and range are those printed in its envelope."""

    iteration: int
    generation: int
    kind: PromptKind
    delivery: Delivery
    rhythm: Rhythm
    min_delay_ms: int
    max_delay_ms: int
    due_at: int
    attempts: int = 0
    retry: Moment | None = None
    retry_used: bool = False
    decision: Decision | None = None
    intent: Intent | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wake timer is armed for `due` (or, where `due` lies at the deadline or later, only the deadline).

    `held`: the loop was paused when `due` passed; only a loop that ticks drive still waits then.
    """

    due: Moment
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """One coalesced iteration waits until the agent is there and idle."""

    due_at: int
    attempts: int = 0
    retry: Moment | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """An iteration is under way."""

    flight: Flight


@dataclass(frozen=True, slots=True)
class Paused:
    """Resumable. `next_due_at` is the wake kept for `resume`; None means "at once".

    `flight` is set only where the deadline passed under a running iteration: the iteration goes on,
    its `complete` or `fail` still counts, anything else leaves the pause as it is.
    """

    reason: PauseReason
    next_due_at: int | None = None
    flight: Flight | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """Ended: the agent reported the objective reached."""

    ended_at: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Ended: the agent reported a negative outcome."""

    ended_at: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Ended by the user."""

    ended_at: int


Phase = Waiting | Queued | Running | Paused | Completed | Failed | Stopped


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention event; the wire form adds objective and session (LoopAttentionEventV1)."""

    status: AttentionStatus
    summary: str
    source: str  # "agent" | "extension"
    text: str
    iteration_count: int
    max_iterations: int
    protocol_retry_count: int
    calendar_elapsed_ms: int
    deadline_remaining_ms: int
    ended_at: int
    observed_at: int


@dataclass(frozen=True, slots=True)
class Loop:
    """The supervision of one objective. Every field survives close, reload and crash.

    `prompts_sent` counts envelopes and reminders handed over; `llm_calls` counts turn pairs of settled
    iterations. `expired_deadlines` are the deadline values for which `duration_limit` has been announced
    (each at most once). `generation` grows with every hand-over and makes old reports recognisable.
    `last_missed` is the last wake that came too late.
    """

    id: str
    objective: str
    policy: Policy
    started_at: int
    phase: Phase
    iteration_count: int = 0
    protocol_retry_count: int = 0
    prompts_sent: int = 0
    llm_calls: int = 0
    generation: int = 0
    last_decision: Decision | None = None
    last_settled_at: int | None = None
    expired_deadlines: tuple[int, ...] = ()
    last_attention: Attention | None = None
    driver: Driver = Driver.RESIDENT
    last_missed: Missed | None = None

    @property
    def deadline_at(self) -> int:
        """Wall instant of the deadline (L-95)."""
        return self.started_at + self.policy.for_ms

    @property
    def deadline_expired(self) -> bool:
        """The present deadline has been announced; it stays so even if the wall clock is set back (D-11)."""
        return self.deadline_at in self.expired_deadlines

    @property
    def flight(self) -> Flight | None:
        """The iteration under way, also where the deadline has passed under it."""
        match self.phase:
            case Running(flight):
                return flight
            case Paused(flight=flight):
                return flight
            case _:
                return None

    @property
    def state(self) -> State:
        return _STATE[type(self.phase)]

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    def stamp(self) -> Stamp | None:
        """The stamp of the iteration under way, None when there is none."""
        flight = self.flight
        return None if flight is None else Stamp(self.id, flight.iteration, flight.generation)


_STATE: dict[type, State] = {
    Waiting: State.WAITING,
    Queued: State.QUEUED,
    Running: State.RUNNING,
    Paused: State.PAUSED,
    Completed: State.COMPLETED,
    Failed: State.FAILED,
    Stopped: State.STOPPED,
}
