"""When does a provider say that it can be asked again?

Rules. The seed's words only: `Try again in [~]N min` or `Retry in [~]N min`. A count that is negative, broken,
or longer than `MAX_WAIT_MS` is none: then the provider is polled. `~` is a rounded number and gets a margin.
"""

from __future__ import annotations

import re

from loopsup.core.classify import MAX_TEXT
from loopsup.core.limits import DAY, MINUTE, SECOND

MARGIN_MS = 30 * SECOND  # Pi rounds the minutes of a reset
MAX_WAIT_MS = 366 * DAY  # the longest duration anywhere in loopsup; beyond it instants cannot be written

_MINUTES = re.compile(
    r"(?:try again|retry) in[ \t]{1,4}(?P<about>~?)[ \t]{0,4}(?P<count>[0-9]{1,20})[ \t]{0,4}(?:minutes?|mins?)\b",
    re.IGNORECASE | re.ASCII,
)


def minutes(text: str) -> int | None:
    """How long to wait, in milliseconds; None without usable guidance."""
    found = _MINUTES.search(text[:MAX_TEXT])
    if found is None:
        return None
    wait = int(found["count"]) * MINUTE + (MARGIN_MS if found["about"] else 0)
    return wait if wait <= MAX_WAIT_MS else None
