"""What a scenario is written in: offsets, policies, the agent's turns, and what is seen of them.

Offsets like "+24h" are wall time since `T0`; the two clocks start at unlike values, so that mixing them up shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from loopsup.core import durations
from loopsup.core.events import Event
from loopsup.core.limits import DEFAULT_FOR_MS, DEFAULT_MAX_DELAY_MS, DEFAULT_MAX_ITERATIONS, DEFAULT_MIN_DELAY_MS
from loopsup.core.model import AbortReason, Auto, Fixed, Loop, Moment, Policy, PromptKind, Rhythm, Stamp

T0 = Moment(wall=int(datetime(2026, 10, 10, tzinfo=UTC).timestamp() * 1000), mono=5_000_000)


def ms(text: str | int) -> int:
    """`"+1h10m"`, `"10m"` or a number of milliseconds."""
    if isinstance(text, int):
        return text
    bare = text.removeprefix("+")
    return 0 if bare in {"0", "0s", "0m"} else durations.parse(bare)


def rhythm_of(every: str) -> Rhythm:
    return Auto() if every == "auto" else Fixed(ms(every))


def policy_of(
    every: str = "10m",
    *,
    for_: str | int = DEFAULT_FOR_MS,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    min_delay: str | int = DEFAULT_MIN_DELAY_MS,
    max_delay: str | int = DEFAULT_MAX_DELAY_MS,
) -> Policy:
    return Policy(rhythm_of(every), ms(min_delay), ms(max_delay), ms(for_), max_iterations)


# ---- the agent's script -----------------------------------------------------------------------------


def call(
    verb: str, delay: str | None = None, *, summary: str = "looked", evidence: str = "ran it"
) -> dict[str, object]:
    """The arguments of a `loop_control` call."""
    arguments: dict[str, object] = {"decision": verb, "summary": summary, "evidence": evidence}
    return arguments if delay is None else {**arguments, "nextDelay": delay}


@dataclass(frozen=True)
class Turn:
    """What the agent does with one prompt of the loop. `decides_after` None: at the end."""

    lasts: int = 0
    calls: tuple[object, ...] = ()
    decides_after: int | None = None
    turns: int = 1
    refused: str | None = None
    busy: bool = False
    dies: str | None = None
    aborted: AbortReason | None = None
    error: str | None = None


def says(verb: str, delay: str | None = None, *, lasts: str | int = 0, decides_after: str | None = None) -> Turn:
    return Turn(ms(lasts), (call(verb, delay),), None if decides_after is None else ms(decides_after))


def omits(lasts: str | int = 0) -> Turn:
    return Turn(ms(lasts))


def refuses(reason: str = "the pipe is closed", *, busy: bool = False) -> Turn:
    return Turn(refused=reason, busy=busy)


def dies(reason: str, lasts: str | int = 0) -> Turn:
    return Turn(ms(lasts), dies=reason)


# ---- what is seen -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """One prompt given to the agent (also where the agent refused it)."""

    at: int
    kind: PromptKind
    stamp: Stamp
    text: str
    taken: bool


@dataclass(frozen=True)
class Record:
    """One line of the journal."""

    event: Event
    now: Moment
    loop: Loop | None


@dataclass(frozen=True)
class View:
    """The columns of a case: S, R, N, MAX, P, E, Q, W#."""

    state: str
    reason: str | None = None
    n: int = 0
    maximum: int = DEFAULT_MAX_ITERATIONS
    p: int = 0
    events: tuple[str, ...] = ()
    queued: int = 0
    wakes: int = 0
