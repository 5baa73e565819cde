"""What `loopsup tick` has to do for a loop whose session nobody owns."""

from __future__ import annotations

from enum import StrEnum

from loopsup.core.events import Opened
from loopsup.core.model import Driver, Loop, Moment, Waiting
from loopsup.core.step import advance


class Need(StrEnum):
    """`TIDY`: something has to be written down (a deadline passed, a supervisor died), but nothing is fired."""

    NOTHING = "nothing"
    TIDY = "tidy"
    FIRE = "fire"


def need(loop: Loop | None, now: Moment) -> Need:
    """What a tick at `now` does; loops with a driver of their own are none of its business (H-04)."""
    if loop is None or loop.driver is not Driver.TICK:
        return Need.NOTHING
    opened = advance(loop, Opened(), now)[-1].loop
    assert opened is not None
    if isinstance(opened.phase, Waiting) and opened.phase.due.wall <= now.wall:
        return Need.FIRE
    if isinstance(loop.phase, Waiting) and isinstance(opened.phase, Waiting):
        return Need.NOTHING
    return Need.NOTHING if opened == loop else Need.TIDY


def due_at(loop: Loop) -> int:
    """The wall instant its wake was due at, for the order in which wakes are fired."""
    match loop.phase:
        case Waiting(due):
            return due.wall
        case _:
            return getattr(loop.phase, "due_at", loop.started_at)
