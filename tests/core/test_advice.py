"""The extended guidance: how long a provider asks to wait, in the words and fields people meet."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core.advice import advised_ms
from loopsup.core.guidance import MAX_WAIT_MS
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND

WALL = 1_791_590_400_000  # 2026-10-10T00:00:00Z
MARGIN = 30 * SECOND
HOME = timezone(timedelta(hours=2))


def zone_of(name: str) -> tzinfo | None:
    if name == "":
        return HOME
    return ZoneInfo(name) if name in ("Europe/Lisbon", "America/New_York", "Etc/GMT+3") else None


def wait(text: str, *, wall: int = WALL, header: int | None = None) -> int | None:
    return advised_ms(text, header, wall, zone_of)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ('429: {"retry_after": 20}', 20 * SECOND),
        (r'429: {"message":"{\"retry_after\": \"30\"}"}', 30 * SECOND),
        ("retry-after: 1.5", 1500),
        ('{"retry_after_ms":1500}', 1500),
        ('{"retryDelay": "34.07s"}', 34_070),
        ('{"retryDelay": "250ms"}', 250),
        ('{"type":"usage_limit_reached","resets_in_seconds":5400}', 90 * MINUTE),
        (f'{{"resets_at": {WALL // 1000 + 3600}}}', HOUR),
        (f'{{"resetsAt": "{WALL + 5}"}}', 5),
        (f"Claude AI usage limit reached|{WALL // 1000 + 7200}", 2 * HOUR),
        ('{"reset_at":"2026-10-10T01:30:00Z"}', 90 * MINUTE),
        ('{"reset_at":"2026-10-10T01:30:00.250+01:00"}', 30 * MINUTE + 250),
        ("Try again in 2 hours", 2 * HOUR + MARGIN),
        ("usage limit, resets in 1 hour 30 minutes", 90 * MINUTE + MARGIN),
        ("available again in 2h15m", 2 * HOUR + 15 * MINUTE + MARGIN),
        ("Retry in about 3 days, 4 hours and 5 minutes", 3 * DAY + 4 * HOUR + 5 * MINUTE + MARGIN),
        ("please try again in 20s.", 20 * SECOND + MARGIN),
        ("resets at 3pm (Europe/Lisbon)", 14 * HOUR + MARGIN),
        ("resets 3:30PM (America/New_York)", 19 * HOUR + 30 * MINUTE + MARGIN),
        ("resets at 12am (Etc/GMT+3)", 3 * HOUR + MARGIN),
        ("resets at 12pm UTC", 12 * HOUR + MARGIN),
        ("try again at 15:00 GMT", 15 * HOUR + MARGIN),
        ("try again at 3:05 AM", HOUR + 5 * MINUTE + MARGIN),
        ("try again at 1:59 AM", 24 * HOUR - MINUTE + MARGIN),  # in the machine's own zone it is two: tomorrow
        ("resets Oct 12, 3:30pm UTC", 2 * DAY + 15 * HOUR + 30 * MINUTE + MARGIN),
        ("resets on Oct 9 at 1am UTC", 364 * DAY + HOUR + MARGIN),
    ],
)
def test_words_and_fields(text: str, ms: int) -> None:
    assert wait(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "usage limit reached",
        "try again later",
        "try again in a while",
        "resets at 3",
        "resets at 25:00",
        "resets at 13pm",
        "resets at 10:75",
        "resets at 3pm (Mars/Olympus)",
        "resets Feb 30 at 3pm UTC",
        f"limit reached|{WALL // 1000 - 5}",
        '{"reset_at":"2026-13-40T01:30:00Z"}',
        '{"retry_after": 99999999999}',
        '{"retry_after": "soon"}',
        "5000000 tokens used of 3pm",
    ],
)
def test_what_is_no_guidance(text: str) -> None:
    assert wait(text) is None


def test_the_header_comes_first() -> None:
    assert wait("try again in 2 hours", header=7) == 7
    assert wait("try again in 2 hours", header=-1) is None


def test_daylight_saving() -> None:
    """In New York 1:30 am comes twice on 1 November 2026, the later counts; 2:30 am of 14 March 2027 never comes."""
    zone = ZoneInfo("America/New_York")
    evening = datetime(2026, 10, 31, 22, 0, tzinfo=zone)
    text = "resets 1:30am (America/New_York)"
    later = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    wall = round(evening.timestamp() * 1000)
    assert wait(text, wall=wall) == round(later.timestamp() * 1000) - wall + MARGIN
    spring = round(datetime(2027, 3, 13, 22, 0, tzinfo=zone).timestamp() * 1000)
    found = wait("resets at 2:30am (America/New_York)", wall=spring)
    assert found is not None
    assert 3 * HOUR < found < 6 * HOUR
    noon = round(datetime(2026, 10, 31, 12, 0, tzinfo=zone).timestamp() * 1000)
    assert wait("resets at 11am (America/New_York)", wall=noon) == 24 * HOUR + MARGIN  # a day of 25 hours


@given(st.text(max_size=300), st.sampled_from(["resets at ", "try again in ", '"reset_at":', "retry_after: "]))
def test_it_is_total(text: str, start: str) -> None:
    found = wait(start + text)
    assert found is None or 0 <= found <= MAX_WAIT_MS


@pytest.mark.parametrize("unit", ["try again in 1h ", "resets ", "retry_after:", "1 h and ", "0", "a/"])
def test_its_cost_is_bounded(unit: str) -> None:
    text = "try again in " + unit * (2_000_000 // len(unit))
    begun = time.process_time()  # not the clock on the wall: others use this machine, too
    wait(text)
    assert time.process_time() - begun < 1  # a hundredth of it; what is not bounded takes minutes
