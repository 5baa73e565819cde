"""The `loop.transition` event: which step of the loop people are told about."""

from __future__ import annotations

import re
from typing import Any

from loopsup.core.events import Event
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


def _place(loop: Loop | None) -> tuple[str | None, str | None]:
    if loop is None:
        return None, None
    return loop.state.value, loop.phase.reason.value if isinstance(loop.phase, Paused) else None
