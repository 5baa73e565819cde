"""May this session be closed now? The one question, asked first by all three reapers.

The reapers: *orphan* (the last client left a while ago), *idle* (nothing has happened for long), *cap* (more
sessions live than are wanted). A session whose supervisor alone can fire an active loop stays; a turn in execution
keeps it, which includes what an agent does by itself, a wait of the continuity and the moment after an abort (X-25,
H-13: an adapter settles only when no automatic work is left). A state nobody can read keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loopsup.core.limits import HOUR, MINUTE, SECOND
from loopsup.core.model import Driver, Loop, Moment, Queued, Running, Waiting

ORPHAN_GRACE_MS = 20 * SECOND  # a client that reconnects finds its session still there
IDLE_TTL_MS = 6 * HOUR  # a forgotten terminal does not hold an agent process for days
MAINTENANCE_MS = 300 * SECOND  # how often what may have been lost or left over is looked for
QUIET_MS = 10 * MINUTE  # a turn nobody watches is ended once nothing was heard of it for this long
SETTLE_MS = 60 * SECOND  # and if it has not settled then, the session is closed over it


@dataclass(frozen=True, slots=True)
class Reaping:
    """`[reaper]` and the environment. `grace_ms` None: no session is closed because its clients left."""

    grace_ms: int | None = ORPHAN_GRACE_MS
    idle_ttl_ms: int = IDLE_TTL_MS
    session_cap: int = 0  # 0: no limit


def grace_ms(said: Iterable[str | None], configured_s: int | None) -> int | None:
    """The orphan grace: the first variable of the environment that is set beats the configuration (D-31).

    Blank is unset; below zero counts as 0, which means never; what is no number gives the default.
    """
    value: float = ORPHAN_GRACE_MS / SECOND if configured_s is None else configured_s
    for text in said:
        if text is not None and text.strip():
            value = _seconds(text)
            break
    return round(value * SECOND) or None if value > 0 else None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return value if math.isfinite(value) else ORPHAN_GRACE_MS / SECOND


def pins(loop: Loop | None, now: Moment, *, beating: bool = False) -> bool:
    """This session alone can fire an active loop whose time is not over, or a heartbeat (H-14, H-22, H-32).

    A loop that waits for `loopsup tick` needs nobody here (H-15).
    """
    if beating:
        return True
    if loop is None or (loop.driver is Driver.TICK and isinstance(loop.phase, Waiting)):
        return False
    if not isinstance(loop.phase, Waiting | Queued | Running):
        return False
    return now.wall < loop.deadline_at


def needed(
    loop: Loop | None, now: Moment, *, working: bool, interrupted: bool = False, beating: bool = False
) -> str | None:
    """Why the session must stay, for people; None: it may be closed.

    `interrupted`: a turn nobody watched was ended by a reaper. Once that has settled it wins over the loop (H-24).
    """
    if working:
        return "its agent is at work"
    if not interrupted and pins(loop, now):
        return "its loop is active, and nobody else fires it"
    if not interrupted and beating:
        return "its heartbeat is active"
    return None
