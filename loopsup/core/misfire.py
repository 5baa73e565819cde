"""A wake that comes too late: what the policies are, and what is kept of a missed one.

Late is judged once, at the instant a wake could be acted on: when its timer is looked at, or when a paused loop
is resumed. A wake that was due in time and waits for a busy agent is queued, not missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loopsup.core.limits import SECOND

TICK_LATE_MS = 90 * SECOND  # a loop that ticks drive: cron comes once a minute, and may be a little late itself
LATE_MS = 5 * SECOND  # clocks are read every second, so this much is no jitter: nobody could fire


@dataclass(frozen=True, slots=True)
class Once:
    """A missed wake is made up for by one late wake, however late."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A missed wake is left out; the loop waits for the next one."""


@dataclass(frozen=True, slots=True)
class Within:
    """Made up for if it is late by less than this, else left out."""

    late_ms: int


Misfire = Once | Skip | Within


class Why(StrEnum):
    """Why nobody fired: the clocks say it, or why the loop was paused."""

    ASLEEP = "asleep"  # wall time passed and monotonic time did not: suspended, or the clock was set forward
    HELD_UP = "held_up"  # both passed: the supervisor was stopped, starved of time or restarted
    NO_TICK = "no_tick"  # `loopsup tick` drives the loop, and did not come
    USER = "user"
    SESSION_CLOSED = "session_closed"
    FORK = "fork"
    INTERRUPTED = "interrupted"
    SUPERVISOR_LOST = "supervisor_lost"


@dataclass(frozen=True, slots=True)
class Held:
    """A wake whose time passed while its loop was paused: why it was, and when it went on (wall ms)."""

    why: Why
    until: int


class Done(StrEnum):
    """What became of a missed wake."""

    WOKEN = "woken"
    SKIPPED = "skipped"
    DROPPED = "dropped"  # the deadline had passed as well


@dataclass(frozen=True, slots=True)
class Missed:
    """The wake due at `due_at` was missed by `late_ms`, and with it `count` periods in all (1: only this one)."""

    due_at: int
    late_ms: int
    count: int
    why: Why
    done: Done


ONCE: Misfire = Once()


def made_up(misfire: Misfire, late_ms: int) -> bool:
    """Whether a wake this late is still fired."""
    match misfire:
        case Once():
            return True
        case Skip():
            return False
        case Within(bound):
            return late_ms < bound


def from_word(value: object) -> Misfire:
    """What `once`, `skip` or a number of milliseconds stands for. ValueError for anything else."""
    match value:
        case "once":
            return Once()
        case "skip":
            return Skip()
        case int() if not isinstance(value, bool):
            return Within(value)
        case _:
            raise ValueError("misfire must be once, skip or a number of milliseconds")


def word(misfire: Misfire) -> str | int:
    """The opposite of `from_word`."""
    match misfire:
        case Once():
            return "once"
        case Skip():
            return "skip"
        case Within(late_ms):
            return late_ms
