"""When does a run that goes on look wrong? Pure answers for the shell's one timer.

All instants are monotonic milliseconds; None means: nothing to watch for.
"""

from __future__ import annotations

from loopsup.core.limits import MINUTE, SECOND

DEFAULT_SILENCE_MS = 15 * MINUTE  # longer than any provider lets a stream hang; `[agent] silence_timeout`
LINGER_MS = 30 * SECOND  # an agent without a terminal tool may say goodbye after its decision for this long
ABORT_GRACE_MS = 10 * SECOND  # an agent that does not settle this long after an abort is ended


def silence_due(open_request: bool, asking: bool, last_sign: int, timeout_ms: int) -> int | None:
    """When the agent has been silent too long. Silence counts only while a model request is open.

    Not during a tool, a back-off, a compaction or while a question waits for a person. 0: never.
    """
    return last_sign + timeout_ms if open_request and not asking and timeout_ms > 0 else None


def linger_due(decided: int | None, terminates: bool) -> int | None:
    """When a turn that goes on after its accepted decision is cut off (agents without a terminal tool)."""
    return None if decided is None or terminates else decided + LINGER_MS


def abort_due(asked: int | None) -> int | None:
    """When an agent that was asked to end its response, and did not, is ended itself."""
    return None if asked is None else asked + ABORT_GRACE_MS
