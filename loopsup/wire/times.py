"""Instants on the wire: ISO-8601 UTC with milliseconds and `Z` (D-50)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3})Z")


def instant(ms: int) -> str:
    """The wall instant `ms` (since the Unix epoch), like `2026-10-10T00:00:00.000Z`."""
    seconds, millis = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def parse_instant(text: str) -> int:
    """Milliseconds since the epoch; ValueError for any other form."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an instant like 2026-10-10T00:00:00.000Z")
    *parts, millis = (int(part) for part in match.groups())
    year, month, day, hour, minute, second = parts
    delta = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + millis
