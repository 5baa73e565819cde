"""The duration grammar (D-03, case 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core.durations import MAX_MS, parse, show
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND

GOOD = {
    "1s": SECOND,
    "90s": 90 * SECOND,
    "10m": 10 * MINUTE,
    "1h30m": 90 * MINUTE,
    "90m": 90 * MINUTE,
    "2d": 2 * DAY,
    "1d2h3m4s": DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND,
    "1h0m": HOUR,
    "007m": 7 * MINUTE,
    "0h1s": SECOND,
    "366d": 366 * DAY,
    "8784h": 366 * DAY,
}
BAD = [
    *("", " ", "10", "10 m", " 10m", "10m ", "10m\n", "-5m", "+5m", "0m", "0s", "0d0h0m0s", "1h60x", "x", "m", "h1"),
    *("1e3s", "1.5h", "1,5h", "5m5m", "5m1h", "5s5m", "10M", "10min", "1h 30m", "1_0m", "0x10m", "auto", "unlimited"),
    *("٠m", "١٠m", "１０m", "²m", "10ｍ", "1h\x0030m", "10m\r\n"),
    *("367d", "366d1s", "8784h1s", "99999999999999d", "9" * 5000 + "s", "1" * 40 + "s", "1m" * 1000),
]


@pytest.mark.parametrize(("text", "expected"), GOOD.items(), ids=GOOD.keys())
def test_good_durations(text: str, expected: int) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text[:20]))
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|zero|long") as caught:
        parse(text)
    assert len(str(caught.value)) < 200, "a huge text is not echoed whole"


@given(st.integers(min_value=SECOND, max_value=MAX_MS))
def test_what_is_shown_parses_back_to_the_second(ms: int) -> None:
    assert parse(show(ms)) == ms - ms % SECOND


@given(st.text(max_size=50))
def test_parse_gives_a_value_in_bounds_or_a_value_error(text: str) -> None:
    try:
        value = parse(text)
    except ValueError:
        return
    assert SECOND <= value <= MAX_MS
    assert text.isascii()


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0s"),
        (-HOUR, "0s"),
        (999, "0s"),
        (SECOND, "1s"),
        (MINUTE, "1m"),
        (90 * MINUTE, "1h30m"),
        (24 * HOUR, "24h"),
        (2 * DAY, "2d"),
        (3 * DAY + HOUR, "3d1h"),
        (HOUR + 1, "1h"),
    ],
)
def test_show(ms: int, shown: str) -> None:
    assert show(ms) == shown
