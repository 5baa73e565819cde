"""Time zones by name, and the machine's own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

LOCALTIME = Path("/etc/localtime")


def zone_of(name: str) -> tzinfo | None:
    """The zone; of "" the machine's own; None if there is no such zone."""
    return _named(name) if name else _own()


def _named(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # unknown, a folder, an absolute path
        return None


def _own() -> tzinfo:
    """By name where it has one: a fixed offset would know nothing of daylight saving."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name and "zoneinfo/" in (where := os.path.realpath(LOCALTIME)):
        name = where.split("zoneinfo/", 1)[1]
    return (_named(name) if name else None) or datetime.fromtimestamp(0, UTC).astimezone().tzinfo or UTC
