"""`loop_control` arguments → a call the loop can use, or a reason the model can read and mend.

Nothing is clamped and nothing is guessed: an argument out of range makes the call invalid (L-26), an
unknown key too (D-05), because a lenient reading would hide that the model misunderstood.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core import durations
from loopsup.core.model import Auto, Fixed, Rhythm, Verb

KEYS = ("decision", "summary", "evidence", "nextDelay")
MAX_TEXT = 64 * 1024  # characters of summary or evidence: each is stored with every later record


@dataclass(frozen=True, slots=True)
class Call:
    """A valid call."""

    verb: Verb
    summary: str
    evidence: str
    next_delay_ms: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call is invalid, addressed to the model."""

    message: str


def parse(arguments: object, rhythm: Rhythm, min_delay_ms: int, max_delay_ms: int) -> Call | Fault:
    """Judge `arguments` by the rhythm and range printed in the envelope they answer."""
    if not isinstance(arguments, dict):
        return Fault("the arguments must be a JSON object with decision, summary and evidence")
    unknown = sorted(str(key) for key in arguments if key not in KEYS)
    if unknown:
        return Fault(f"unknown argument {unknown[0]!r}; allowed are {', '.join(KEYS)}")
    for key, value in arguments.items():
        if not isinstance(value, str):
            return Fault(f"{key} must be a string")
        if len(value) > MAX_TEXT:
            return Fault(f"{key} is longer than {MAX_TEXT} characters; shorten it")
    try:
        verb = Verb(arguments.get("decision", ""))
    except ValueError:
        return Fault(f"decision must be one of {', '.join(Verb)}")
    for key in ("summary", "evidence"):
        if not arguments.get(key, "").strip():
            return Fault(f"{key} is missing or blank; every decision needs a summary and evidence")
    delay = _delay(arguments.get("nextDelay"), verb, rhythm, min_delay_ms, max_delay_ms)
    if isinstance(delay, Fault):
        return delay
    return Call(verb, arguments["summary"], arguments["evidence"], delay)


def _delay(text: str | None, verb: Verb, rhythm: Rhythm, min_delay_ms: int, max_delay_ms: int) -> int | Fault | None:
    shortest, longest = durations.show(min_delay_ms), durations.show(max_delay_ms)
    if verb is not Verb.CONTINUE:
        return None if text is None else Fault(f"nextDelay goes only with continue, not with {verb}")
    match rhythm:
        case Fixed(every_ms):
            if text is not None:
                return Fault(
                    f"nextDelay is not allowed: the rhythm is fixed at {durations.show(every_ms)}; leave it out"
                )
            return None
        case Auto():
            if text is None:
                return Fault(
                    f"nextDelay is missing: the rhythm is auto, so continue needs one in {shortest}..{longest}"
                )
    try:
        delay = durations.parse(text)
    except ValueError as error:
        return Fault(f"nextDelay {error}")
    if not min_delay_ms <= delay <= max_delay_ms:
        return Fault(f"nextDelay {text} is outside {shortest}..{longest}; choose one inside")
    return delay
