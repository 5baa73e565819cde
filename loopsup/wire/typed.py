"""A policy as a person types it, and its way into the values of the control protocol.

Rules: everything that is wrong is told at once, each fault naming its option; nothing is adjusted.
What a valid combination is, the core says (`core.policy.check`); here is only how it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from loopsup.core import durations
from loopsup.core.limits import DEFAULT_FOR_MS, DEFAULT_MAX_DELAY_MS, DEFAULT_MAX_ITERATIONS, DEFAULT_MIN_DELAY_MS
from loopsup.core.misfire import from_word
from loopsup.core.model import Auto, Fixed, Policy
from loopsup.errors import UsageError

MAX_SHOWN = 32  # characters of a wrong value that are repeated in the message
_COUNT = re.compile(r"[0-9]{1,9}")  # nobody means a thousand million iterations


class Faults:
    """Collects what is wrong, so that it can be told at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, sentences: Iterable[str]) -> None:
        self._found.extend(sentences)

    def duration(self, option: str, text: str | None) -> int | None:
        """Milliseconds; None if the option is absent or wrong."""
        if text is None:
            return None
        try:
            return durations.parse(text)
        except ValueError as error:
            self._found.append(f"{option}: {error}")
            return None

    def _or(self, option: str, text: str | None, words: str) -> int | None:
        """A duration where there are `words` as well."""
        if text is None or text[:1].isdigit():
            return self.duration(option, text)
        try:
            return durations.parse(text)
        except ValueError as error:
            self._found.append(f"{option}: {error}, or say {words}")
            return None

    def rhythm(self, text: str | None) -> str | int | None:
        """`auto` or milliseconds."""
        return text if text == "auto" else self._or("--every", text, "auto")

    def misfire(self, text: str | None) -> str | int | None:
        """`once`, `skip` or milliseconds."""
        return text if text in ("once", "skip") else self._or("--misfire", text, "once or skip")

    def count(self, option: str, text: str | None) -> int | None:
        """A whole number of 1 or more."""
        if text is None:
            return None
        if _COUNT.fullmatch(text) and int(text) >= 1:
            return int(text)
        self._found.append(f"{option}: {quoted(text)} is not a whole number from 1 to 999999999")
        return None

    def __bool__(self) -> bool:
        return bool(self._found)

    def refuse(self) -> None:
        """UsageError with all faults, if there are any."""
        if self._found:
            raise UsageError("; ".join(self._found))


def changes(
    faults: Faults,
    *,
    every: str | None,
    min_delay: str | None,
    max_delay: str | None,
    for_: str | None,
    max_iterations: str | None,
    misfire: str | None = None,
) -> dict[str, Any]:
    """The options given, as the control protocol's `policy` has them; an absent option has no key."""
    values = {
        "rhythm": faults.rhythm(every),
        "minDelayMs": faults.duration("--min-delay", min_delay),
        "maxDelayMs": faults.duration("--max-delay", max_delay),
        "forMs": faults.duration("--for", for_),
        "maxIterations": faults.count("--max-iterations", max_iterations),
        "misfire": faults.misfire(misfire),
    }
    return {key: value for key, value in values.items() if value is not None}


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """A whole policy: the defaults of `start` where nothing was given (the rhythm has none)."""
    return {
        "minDelayMs": DEFAULT_MIN_DELAY_MS,
        "maxDelayMs": DEFAULT_MAX_DELAY_MS,
        "forMs": DEFAULT_FOR_MS,
        "maxIterations": DEFAULT_MAX_ITERATIONS,
        "misfire": "once",
        **given,
    }


def as_policy(wire: dict[str, Any]) -> Policy:
    """The value of the core that a whole policy on the wire stands for."""
    rhythm = wire["rhythm"]
    return Policy(
        rhythm=Auto() if rhythm == "auto" else Fixed(rhythm),
        min_delay_ms=wire["minDelayMs"],
        max_delay_ms=wire["maxDelayMs"],
        for_ms=wire["forMs"],
        max_iterations=wire["maxIterations"],
        misfire=from_word(wire["misfire"]),
    )


def quoted(text: str) -> str:
    return f"'{text}'" if len(text) <= MAX_SHOWN else f"'{text[:MAX_SHOWN]}…'"
