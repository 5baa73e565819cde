"""A heartbeat in a sentence, as `status` and `heartbeat status` show it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from loopsup.cli.render import local_time, safe
from loopsup.core.durations import show

NONE = "no heartbeat; `loopsup heartbeat start --every D` begins one"


def heartbeat_words(heartbeat: Mapping[str, Any], now: int, zone: tzinfo | None) -> str:
    """`every 10m, 3 so far, the next at 14:32:00; it ends at …`."""
    asks = ", each asking the agent" if heartbeat["ask"] else ""
    text = f"every {show(heartbeat['everyMs'])}{asks}, {heartbeat['beats']} so far"
    if heartbeat["state"] == "paused":
        return f"paused ({safe(heartbeat['pauseReason'])}): {text}; `loopsup heartbeat resume` goes on"
    at, end = (local_time(heartbeat[key], now, zone) for key in ("nextAt", "endsAt"))
    return f"{text}, the next at {at}; it ends at {end}"
