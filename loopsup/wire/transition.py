"""The `loop.transition` and `loop.misfire` events: which steps of the loop people are told about."""

from __future__ import annotations

import re
from typing import Any

from loopsup.core.events import BranchMoved, Event
from loopsup.core.misfire import Missed
from loopsup.core.model import Loop, Paused

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def transition_data(before: Loop | None, after: Loop | None, cause: Event) -> dict[str, Any] | None:
    """The event's data, None where neither state nor pause reason changed.

    `cause` is the event's name as the journal spells it, like `iteration_settled`.
    """
    (was, was_reason), (now, reason) = _place(before), _place(after)
    if (was, was_reason) == (now, reason):
        return None
    why = {} if reason is None else {"pauseReason": reason}
    return {"from": was, "to": now, **why, "cause": _WORD.sub("_", type(cause).__name__).lower()}


def newly_missed(before: Loop | None, after: Loop | None, cause: Event) -> Missed | None:
    """The wake this step found missed, if it did; a branch may bring back one that was told long ago."""
    if after is None or isinstance(cause, BranchMoved):
        return None
    known = None if before is None or before.id != after.id else before.last_missed
    return None if after.last_missed == known else after.last_missed


def _place(loop: Loop | None) -> tuple[str | None, str | None]:
    if loop is None:
        return None, None
    return loop.state.value, loop.phase.reason.value if isinstance(loop.phase, Paused) else None
