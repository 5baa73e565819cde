"""A heartbeat in a sentence, as `status` and `heartbeat status` show it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from loopsup.cli.render import local_time, safe
from loopsup.core.durations import show

NONE = "no heartbeat; `loopsup heartbeat start --every DUR` begins one"


def heartbeat_words(heartbeat: Mapping[str, Any], now: int, zone: tzinfo | None) -> str:
    """`every 10m, 3 so far, the next at 14:32:00; it ends at …`."""
    asks = ", each asking the agent" if heartbeat["ask"] else ""
    text = f"every {show(heartbeat['everyMs'])}{asks}, {heartbeat['beats']} so far"
    if heartbeat["state"] == "paused":
        return f"paused ({safe(heartbeat['pauseReason'])}): {text}; `loopsup heartbeat resume` goes on"
    end = local_time(heartbeat["endsAt"], now, zone)
    if heartbeat["nextAt"] is None:
        return f"{text}, no more before it ends at {end}"
    return f"{text}, the next at {local_time(heartbeat['nextAt'], now, zone)}; it ends at {end}"
