"""How long a provider asks to wait, beyond the seed's minutes (`[continuity] guidance = "extended"`).

Rules. Structured values come before free text: `retry_after`, `resets_in_seconds`, `resets_at` (seconds since the
epoch, or ISO-8601), `limit reached|EPOCH`. Free text: `try again in 2 hours`, `resets at 3pm (Europe/Lisbon)`,
`resets Oct 9, 3:30pm`. A time of the day is the next such time in its zone, the machine's own where none is named;
where a change of daylight saving makes it two, the later one. Text is rounded, so it gets the margin. Bounded like
every look at a provider's words; a date that does not exist, or lies behind or too far ahead, is no guidance.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

from loopsup.core.classify import MAX_TEXT
from loopsup.core.guidance import MARGIN_MS, MAX_WAIT_MS
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND

# The zone of a name like "Europe/Lisbon", of "" the machine's own; None: there is none of that name.
ZoneOf = Callable[[str], tzinfo | None]

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_IS = r"[\\\"']{0,4}[ \t]{0,3}[:=][ \t]{0,3}[\\\"']{0,4}"  # also in JSON that is a text in JSON
_AFTER = rf"retry[_-]?(?:after|delay)[_-]?(?P<name>ms|millis\w{{0,10}})?{_IS}{_NUMBER}(?P<unit>ms)?"
_IN_SECONDS = rf"resets?[_-]?in[_-]?sec(?:ond)?s{_IS}{_NUMBER}"
_EPOCH = rf"(?:resets?[_-]?at{_IS}|limit reached\|)([0-9]{{13}}|[0-9]{{10}})(?![0-9])"
_ISO = rf"resets?[_-]?at{_IS}([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9:.]{{5,15}}(?:Z|[-+][0-9]{{2}}:?[0-9]{{2}}))"

_WHEN = r"(?:try again|retry|resets?|available(?: again)?)"
_PART = r"[0-9]{1,5}[ \t]{0,2}(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_FOR = rf"{_WHEN} in (?:about |~)?(?P<parts>{_PART}(?:(?:,? and |, ?| )?{_PART}){{0,3}})"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = (
    rf"{_WHEN} (?:on )?(?:(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.? (?P<day>[0-9]{{1,2}}),? )?(?P<at>at )?"
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2}))?(?:[ \t]{0,2}(?P<half>am|pm))?(?![a-z0-9:])"
    r"(?: ?\((?P<zone>[a-z0-9_+-]{1,30}(?:/[a-z0-9_+-]{1,30}){0,2})\)| (?P<utc>utc|gmt)\b)?"
)
_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND}


def advised_ms(text: str, retry_after_ms: int | None, wall: int, zone_of: ZoneOf) -> int | None:
    """How long to wait from `wall` (ms); None without guidance. `retry_after_ms`: the header, where there was one."""
    words = text[:MAX_TEXT]
    wait = retry_after_ms if retry_after_ms is not None else _structured(words, wall)
    if wait is None:
        wait = _duration(words)
    if wait is None:
        wait = _time_of_day(words, wall, zone_of)
    return wait if wait is not None and 0 <= wait <= MAX_WAIT_MS else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


def _find(pattern: str, words: str) -> re.Match[str] | None:
    return _compiled(pattern).search(words)


def _structured(words: str, wall: int) -> int | None:
    if (found := _find(_AFTER, words)) is not None:
        unit = 1 if found["name"] or found["unit"] else SECOND
        return round(float(found[2]) * unit)
    if (found := _find(_IN_SECONDS, words)) is not None:
        return round(float(found[1]) * SECOND)
    if (found := _find(_EPOCH, words)) is not None:
        return int(found[1]) * (SECOND if len(found[1]) == 10 else 1) - wall
    if (found := _find(_ISO, words)) is not None:
        try:
            return round(datetime.fromisoformat(found[1]).timestamp() * SECOND) - wall
        except (ValueError, OverflowError):
            return None
    return None


def _duration(words: str) -> int | None:
    found = _find(_FOR, words)
    if found is None:
        return None
    parts = _compiled(r"([0-9]{1,5})[ \t]{0,2}([dhms])").findall(found["parts"])
    return sum(int(count) * _UNITS[unit.lower()] for count, unit in parts) + MARGIN_MS


def _time_of_day(words: str, wall: int, zone_of: ZoneOf) -> int | None:
    found = _find(_CLOCK, words)
    if found is None or not (found["half"] or found["minute"]):
        return None  # a bare number is anything
    zone = UTC if found["utc"] else zone_of(found["zone"] or "")
    hour = _hour(int(found["hour"]), found["half"])
    if zone is None or hour is None:
        return None
    now = datetime.fromtimestamp(wall / SECOND, zone)
    try:
        named = now.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            named = named.replace(month=_MONTHS.index(found["month"].lower()) + 1, day=int(found["day"]))
    except ValueError:
        return None
    then = _latest(named)
    if then <= wall:
        then = _latest(named + (timedelta(days=365) if found["month"] else timedelta(days=1)))
    return then - wall + MARGIN_MS


def _latest(named: datetime) -> int:
    """The instant (ms) of a local time; where the clocks change, the later of the two it may be."""
    return max(round(named.replace(fold=fold).timestamp() * SECOND) for fold in (0, 1))


def _hour(hour: int, half: str | None) -> int | None:
    if half is None:
        return hour if hour < 24 else None
    if not 1 <= hour <= 12:
        return None
    return hour % 12 + (12 if half.lower() == "pm" else 0)
