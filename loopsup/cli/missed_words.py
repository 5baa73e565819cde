"""A missed wake in words, the same in `status`, `history` and the stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from loopsup.cli.render import local_time, safe, span

_WHY = {
    "asleep": "the machine slept, or its clock was set forward",
    "no_tick": "`loopsup tick` did not come",
    "held_up": "the supervisor was stopped, held up or restarted",
    "user": "the loop was paused by you",
    "session_closed": "the session was closed",
    "fork": "the loop was paused: the conversation was forked or moved",
    "interrupted": "the loop was paused: its iteration was aborted",
    "supervisor_lost": "its supervisor had ended without closing",
}
_DONE = {
    "woken": "made up for by one wake",
    "skipped": "skipped, by --misfire",
    "dropped": "not made up for: the time was used up",
}


def misfire_words(policy: str | int) -> str:
    """What becomes of a missed wake: `made up for once`, `skipped` or `skipped from 1h on`."""
    words = {"once": "made up for once", "skip": "skipped"}
    return words.get(policy, safe(policy)) if isinstance(policy, str) else f"skipped from {span(policy)} on"


def missed_words(missed: Mapping[str, Any], now: int, zone: tzinfo | None) -> str:
    """`the wake of 14:00:00 was missed by 3h (the machine slept, …): made up for by one wake`."""
    why, what, count = str(missed["why"]), str(missed["done"]), int(missed["count"])
    due, late = local_time(missed["dueAt"], now, zone), span(int(missed["missedByMs"]))
    more = f", and {count - 1} more after it" if count > 1 else ""
    return f"the wake of {due} was missed by {late}{more} ({_WHY.get(why, safe(why))}): {_DONE.get(what, safe(what))}"
