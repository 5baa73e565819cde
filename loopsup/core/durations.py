"""Durations as people write them: `90s`, `10m`, `1h30m`, `2d` (D-03).

Grammar `^(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?(?:[0-9]+s)?$` with at least one unit and ASCII digits only;
at least one second, at most 366 days. Values are integer milliseconds.
"""

from __future__ import annotations

import re

from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND

MAX_MS = 366 * DAY  # a leap year: longer loops are a mistake in the unit, and far from any overflow
MAX_TEXT = 32  # digits beyond this cannot be within MAX_MS; keeps int() cheap

_GRAMMAR = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"))


def parse(text: str) -> int:
    """Milliseconds of a duration. ValueError says in one clause what is wrong with it."""
    match = _GRAMMAR.fullmatch(text) if 0 < len(text) <= MAX_TEXT else None
    if match is None or not any(match.groups()):
        least = ", at least 1s" if text.endswith("ms") else ""
        raise ValueError(f"{_quoted(text)} is not a duration; write it like 90s, 10m, 1h30m or 2d{least}")
    total = sum(int(digits) * unit for digits, (unit, _) in zip(match.groups(), _UNITS, strict=True) if digits)
    if total < SECOND:
        raise ValueError(f"{_quoted(text)} is zero; the shortest duration is 1s")
    if total > MAX_MS:
        raise ValueError(f"{_quoted(text)} is too long; the longest duration is 366d")
    return total


def show(ms: int) -> str:
    """An exact spelling in the grammar: `24h`, `1h30m`, `2d`; days are used from two days on.

    A negative value counts as 0, a broken second is cut.
    """
    rest = max(0, ms)
    parts = []
    for unit, letter in _UNITS if rest >= 2 * DAY else _UNITS[1:]:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"


def _quoted(text: str) -> str:
    shown = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return f"'{shown}'"
