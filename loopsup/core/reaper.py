"""May this session be closed now?"""

from __future__ import annotations

from loopsup.core.limits import SECOND
from loopsup.core.model import Driver, Loop, Queued, Running, Waiting

VACANT_GRACE_MS = 20 * SECOND  # a client that reconnects finds its session still there


def vacant(loop: Loop | None, followers: int, working: bool) -> bool:
    """Nobody needs the session: no active loop, no follower, and the agent has nothing in hand.

    A paused loop does not hold it (it can be resumed from the files); an unreadable one neither. Nor does one
    that waits for `loopsup tick`, which needs nobody here (H-15).
    """
    active = loop is not None and isinstance(loop.phase, Waiting | Queued | Running)
    if loop is not None and loop.driver is Driver.TICK and isinstance(loop.phase, Waiting):
        active = False
    return not active and followers == 0 and not working
