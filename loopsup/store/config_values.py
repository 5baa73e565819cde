"""What a setting may be: a TOML value in, the value kept out; a ValueError says in words what it should have been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopsup.core import durations

Check = Callable[[Any], Any]


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def hook(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the absolute path of one executable file; for no hook, leave the line out")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError('a list of texts, like ["bash", "write"]')
    return tuple(value)


def count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 2**53:
        raise ValueError("a whole number, 0 or more")
    return value


def count_or_unlimited(value: Any) -> int | str:
    if value == "unlimited":
        return "unlimited"
    try:
        return count(value)
    except ValueError:
        raise ValueError('a whole number, 0 or more, or "unlimited"') from None


def duration(value: Any) -> int:
    try:
        return durations.parse(value) if isinstance(value, str) else durations.parse("")
    except ValueError:
        raise ValueError('a duration like "90s", "10m" or "1h30m"') from None


def duration_or_off(value: Any) -> int:
    if value in ("0", "0s") or (type(value) is int and value == 0):
        return 0
    try:
        return duration(value)
    except ValueError:
        raise ValueError('a duration like "15m", or 0 for off') from None


def one_of(*words: str) -> Check:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(" or ".join(f'"{word}"' for word in words))
        return str(value)

    return check
