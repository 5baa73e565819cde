"""Everything that can happen to a loop: a closed union.

Commands are imperative, facts are past tense. A field `idle` says whether the agent can take a prompt
of the loop right now: its process is up, it has settled, and no user message waits to go first.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core.misfire import Misfire
from loopsup.core.model import AbortReason, Driver, Loop, Policy, Rhythm, Stamp

# ---- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """A new loop; refused while one is active or paused. `after_ms` None: the first wake is now."""

    loop_id: str
    objective: str
    policy: Policy
    after_ms: int | None
    idle: bool
    driver: Driver = Driver.RESIDENT


@dataclass(frozen=True, slots=True)
class Pause:
    """`loopsup pause`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """`loopsup resume`."""

    idle: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """`loopsup stop`."""


@dataclass(frozen=True, slots=True)
class Update:
    """`loopsup update`: None leaves a value as it is."""

    rhythm: Rhythm | None = None
    min_delay_ms: int | None = None
    max_delay_ms: int | None = None
    for_ms: int | None = None
    max_iterations: int | None = None
    misfire: Misfire | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """The session ends in good order; `turns` are the turn pairs of the iteration cut short.

    `leaving`: nobody asked for it, its supervisor only goes; a wake that `loopsup tick` fires stays as it is.
    """

    turns: int = 0
    leaving: bool = False


# ---- facts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed or the agent became idle: look whether anything is due.

    `by`: who looks. A wake is fired only by its loop's own driver; what was fired goes on with either.
    """

    idle: bool
    by: Driver = Driver.RESIDENT


@dataclass(frozen=True, slots=True)
class HandoverAccepted:
    """The agent took the prompt."""

    stamp: Stamp


@dataclass(frozen=True, slots=True)
class HandoverRefused:
    """The prompt provably did not start a turn. `busy`: its time has not come yet; no try is spent.

    `retry_ms`: when it may be handed over again, None for the usual time of a busy agent.
    """

    stamp: Stamp
    reason: str
    busy: bool = False
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DecisionCalled:
    """`loop_control` was called. `stamp` None: outside an iteration. `arguments` is what the model sent."""

    stamp: Stamp | None
    arguments: object


@dataclass(frozen=True, slots=True)
class IterationSettled:
    """No automatic work of the prompt `stamp` is left. `turns`: turn pairs since its hand-over.

    `again_ms`: its response was interrupted; the same prompt is handed over again after this long.
    """

    stamp: Stamp
    idle: bool
    turns: int = 0
    aborted: AbortReason | None = None
    error: str | None = None
    again_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RedeliveryEnded:
    """An interrupted iteration that waits to be handed over again will not be: switched off, or aborted."""

    idle: bool
    aborted: AbortReason | None = None


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The agent's process ended by itself. `reason` has its exit status; `turns` as in IterationSettled."""

    reason: str
    turns: int = 0


@dataclass(frozen=True, slots=True)
class AgentStartFailed:
    """The agent was needed and could not be started."""

    reason: str


@dataclass(frozen=True, slots=True)
class ConversationForking:
    """The agent is about to fork, clone or move in its tree."""


@dataclass(frozen=True, slots=True)
class BranchMoved:
    """The conversation now stands on a branch whose newest marked state is `loop` (None: no loop there)."""

    loop: Loop | None


@dataclass(frozen=True, slots=True)
class TtsrInjection:
    """A reminder of stream rules went into the conversation: of `rules` now; `injected` so far on this branch, the
    rest of what a `once` rule needs to know after a restart. Changes no loop, and is journaled all the same.
    """

    rules: tuple[str, ...]
    injected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A supervisor (or a command without one) took over the journal.

    `reload`: a transparent restart, timers go on. Otherwise an active loop belonged to a supervisor that
    died. `turns` are the turn pairs of an iteration that was in flight, recounted from the event log.
    """

    reload: bool = False
    turns: int = 0


Command = Start | Pause | Resume | Stop | Update | Close
Fact = (
    Ticked
    | HandoverAccepted
    | HandoverRefused
    | DecisionCalled
    | IterationSettled
    | RedeliveryEnded
    | AgentLost
    | AgentStartFailed
    | ConversationForking
    | BranchMoved
    | TtsrInjection
    | Opened
)
Event = Command | Fact
