"""The heartbeat of a session: it reports on a cadence, beside whatever its loop does (H-32).

The same form as the loop's machine: `step(heartbeat, event, now)` gives the next value and what is to be done. A
beat costs no model call, unless it asks the agent; then it is one turn each, so a heartbeat always has an end.
A heartbeat that was missed is not made up for: the next one says more. One that is due at the very end still comes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from loopsup.core.durations import show
from loopsup.core.effects import Reply
from loopsup.core.limits import DAY, MINUTE, SECOND
from loopsup.core.model import Moment

MIN_EVERY_MS = SECOND
MIN_ASK_MS = MINUTE  # each one is a paid turn
DEFAULT_FOR_MS = DAY  # as a loop's
DRIFT_MS = SECOND  # by so much, and less than half a period, the last beat may come after the end: each is a bit late


class Rest(StrEnum):
    """Why a heartbeat does not beat."""

    USER = "user"
    SESSION_CLOSED = "session_closed"
    SUPERVISOR_LOST = "supervisor_lost"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`due` None: it rests, for the reason `rest`. `ends_at`: the wall instant at which it ends by itself."""

    every_ms: int
    ask: bool
    ends_at: int
    due: Moment | None
    rest: Rest | None = None
    beats: int = 0
    last_at: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """`heartbeat start`: a new one, in place of any that is there."""

    every_ms: int
    ask: bool = False
    for_ms: int = DEFAULT_FOR_MS


@dataclass(frozen=True, slots=True)
class Halt:
    """`heartbeat pause`."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """`heartbeat resume`."""


@dataclass(frozen=True, slots=True)
class End:
    """`heartbeat stop`."""


@dataclass(frozen=True, slots=True)
class Time:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Shut:
    """The session closes."""


@dataclass(frozen=True, slots=True)
class Found:
    """A supervisor took over. `reload`: a transparent restart; otherwise what beats belonged to one that died."""

    reload: bool = False


Event = Begin | Halt | GoOn | End | Time | Shut | Found


@dataclass(frozen=True, slots=True)
class Beaten:
    """The heartbeat after an event (None: there is none); `beat`: report now; `over`: it ended by itself."""

    heartbeat: Heartbeat | None
    beat: bool = False
    over: bool = False
    reply: Reply | None = None


def step(heartbeat: Heartbeat | None, event: Event, now: Moment) -> Beaten:
    """One event. Total: what does not apply changes nothing."""
    match event:
        case Begin():
            return _begin(heartbeat, event, now)
        case Time():
            return _time(heartbeat, now)
        case Found():
            return Beaten(_found(heartbeat, event, now))
        case Shut():
            return Beaten(_rested(heartbeat, Rest.SESSION_CLOSED))
        case Halt() | GoOn() | End():
            return _command(heartbeat, event, now)
        case _:
            assert_never(event)


def beats(heartbeat: Heartbeat | None) -> bool:
    """It beats, and so needs somebody to be there (H-14, H-32)."""
    return heartbeat is not None and heartbeat.due is not None


def lasts(heartbeat: Heartbeat | None, now: Moment) -> bool:
    """It beats or could be brought back: its end has not come."""
    return heartbeat is not None and now.wall < heartbeat.ends_at


def next_beat(heartbeat: Heartbeat) -> Moment | None:
    """When it beats next; None: no more, because it rests or ends before."""
    due = heartbeat.due
    if due is None or due.wall > heartbeat.ends_at + min(DRIFT_MS, heartbeat.every_ms // 2):
        return None
    return due


def next_due(heartbeat: Heartbeat) -> Moment | None:
    """When `Time` has something to do: at the next beat, or where there is none, at the end."""
    due = heartbeat.due
    return due if due is None or next_beat(heartbeat) is not None else due.plus(heartbeat.ends_at - due.wall)


def _begin(heartbeat: Heartbeat | None, event: Begin, now: Moment) -> Beaten:
    least = MIN_ASK_MS if event.ask else MIN_EVERY_MS
    if event.every_ms < least:
        why = "with --ask, because each one is a turn of the agent" if event.ask else "between two heartbeats"
        return Beaten(heartbeat, reply=Reply(False, f"--every must be at least {show(least)} {why}", kind="usage"))
    if event.for_ms < event.every_ms:
        told = f"--for {show(event.for_ms)} is shorter than --every {show(event.every_ms)}"
        return Beaten(heartbeat, reply=Reply(False, told, kind="usage"))
    fresh = Heartbeat(event.every_ms, event.ask, now.wall + event.for_ms, now.plus(event.every_ms))
    return Beaten(fresh, reply=Reply(True, f"a heartbeat every {show(event.every_ms)}, for {show(event.for_ms)}"))


def _time(heartbeat: Heartbeat | None, now: Moment) -> Beaten:
    if heartbeat is None:
        return Beaten(None)
    last = next_beat(heartbeat)
    ends = last is None or last.wall <= heartbeat.ends_at - heartbeat.every_ms  # it slept through others, too
    if now.wall >= heartbeat.ends_at and ends:
        return Beaten(None, over=True)
    if heartbeat.due is None or not heartbeat.due.reached(now):
        return Beaten(heartbeat)
    beaten = replace(heartbeat, due=now.plus(heartbeat.every_ms), beats=heartbeat.beats + 1, last_at=now.wall)
    return Beaten(beaten, beat=True)


def _found(heartbeat: Heartbeat | None, event: Found, now: Moment) -> Heartbeat | None:
    if heartbeat is None or heartbeat.due is None:
        return heartbeat
    if not event.reload:
        return _rested(heartbeat, Rest.SUPERVISOR_LOST)
    return replace(heartbeat, due=now.plus(heartbeat.due.wall - now.wall))


def _rested(heartbeat: Heartbeat | None, why: Rest) -> Heartbeat | None:
    return heartbeat if heartbeat is None or heartbeat.due is None else replace(heartbeat, due=None, rest=why)


def _command(heartbeat: Heartbeat | None, event: Halt | GoOn | End, now: Moment) -> Beaten:
    if heartbeat is None or not lasts(heartbeat, now):
        none = "there is no heartbeat in this session; begin one with `loopsup heartbeat start --every DUR`"
        return Beaten(heartbeat, reply=Reply(False, none, kind="not_found"))
    match event:
        case Halt() if heartbeat.due is None:
            return Beaten(heartbeat, reply=Reply(True, "the heartbeat is paused already"))
        case Halt():
            return Beaten(_rested(heartbeat, Rest.USER), reply=Reply(True, "the heartbeat is paused"))
        case GoOn() if heartbeat.due is not None:
            return Beaten(heartbeat, reply=Reply(False, "the heartbeat is not paused"))
        case GoOn():
            on = replace(heartbeat, due=now.plus(heartbeat.every_ms), rest=None)
            return Beaten(on, reply=Reply(True, "the heartbeat goes on"))
        case End():
            return Beaten(None, reply=Reply(True, "the heartbeat is stopped"))
