"""What a line typed into `attach` means: a message, an answer to the question that is shown, or a word of its own.

Rules: a line that begins with a slash never reaches the model by mistake; one that is meant to, begins with two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.cli.render import local_time, one_line, safe
from loopsup.core.model import Loop
from loopsup.wire.control import Request
from loopsup.wire.times import instant

ALLOW, DENY, QUIT = "/allow", "/deny", "/quit"
MAX_SUMMARY = 300  # columns of what the last decision said; `status` has all of it


@dataclass(frozen=True, slots=True)
class Leave:
    """The person leaves."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Nothing is sent; this is told."""

    text: str


def meaning(line: str, question: Mapping[str, Any] | None) -> Request | Leave | Hint:
    """What to do about a typed line. `question`: the one that is shown."""
    word = line.strip()
    if word == QUIT:
        return Leave()
    if word in (ALLOW, DENY):
        if question is None:
            return Hint("no question is pending, so there is nothing to answer")
        return Request("answer", {"allow": word == ALLOW, "id": question["id"]})
    if word.startswith("//"):
        return Request("say", {"text": word[1:]})
    if word.startswith("/"):
        shown = safe(word.split()[0])
        return Hint(
            f"{shown} is unknown here and was not sent; there are {ALLOW}, {DENY} and {QUIT}, "
            "and a message that begins with / is typed with //"
        )
    return Request("say", {"text": line})


def so_far(loop: Loop | None, now: int) -> str | None:
    """What the last iteration came to, for somebody who has just come."""
    decision = None if loop is None else loop.last_decision
    if decision is None:
        return None
    at, summary = local_time(instant(decision.at), now), one_line(decision.summary, MAX_SUMMARY)
    return f"iteration {decision.iteration} decided at {at} to {decision.verb.value}: {summary}"
