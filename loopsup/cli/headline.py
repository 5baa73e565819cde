"""The state of a loop in a sentence: what it is, why, what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from loopsup.cli.render import INDENT, local_time, safe, span, wait_span, wrap
from loopsup.core.durations import show as show_duration
from loopsup.core.limits import MINUTE, SECOND
from loopsup.wire.times import parse_instant

ENDED = frozenset({"completed", "failed", "stopped"})
SILENT_MS = 3 * MINUTE  # a timer fires every minute; three without one are no accident

Status = Mapping[str, Any]

# Pause reason -> (why, what to do next).
_PAUSED: Mapping[str, tuple[str, str]] = {
    "user": ("you paused it", "`loopsup resume` goes on"),
    "blocked": ("the agent is blocked and needs you", "clear it up, then `loopsup resume`"),
    "duration_limit": (
        "its time is used up",
        "`loopsup update --for {longer}` gives it more (counted from its start), then `loopsup resume`",
    ),
    "iteration_limit": (
        "all its iterations are used up",
        "`loopsup update --max-iterations {more}` gives it more, then `loopsup resume`",
    ),
    "protocol_error": (
        "the agent did not end its iteration with a valid decision, or could not be run",
        "look at `loopsup history` and `loopsup logs`, then `loopsup resume`",
    ),
    "session_closed": ("its session was closed", "`loopsup resume` opens the conversation again and goes on"),
    "fork": (
        "the conversation was forked or moved to another branch",
        "`loopsup resume` goes on from where the conversation stands now",
    ),
    "interrupted": ("its iteration was aborted", "`loopsup resume` goes on with the next iteration"),
    "supervisor_lost": (
        "its supervisor ended without closing (crash, kill or power loss); nothing fires meanwhile",
        "`loopsup resume` goes on",
    ),
    "unknown_version": (
        "its state was written by another version of loopsup",
        "use that version; here only `loopsup status` and `loopsup stop` work",
    ),
}

# The same where all iterations are used, too.
_USED_UP: Mapping[str, str] = {
    "": "all its iterations are used: `loopsup update --max-iterations {more}` gives it more, then `loopsup resume`",
    "blocked": "clear it up, give it more iterations, as all are used (`loopsup update --max-iterations {more}`), "
    "then `loopsup resume`",
    "duration_limit": "`loopsup update --for {longer} --max-iterations {more}` gives it more of both, as all its "
    "iterations are used, too; then `loopsup resume`",
}


# Where the deadline passed while nobody was there: it is recorded at the next opening, and a resume would be refused.
_TIME_IS_UP = "its time is used up meanwhile: `loopsup update --for {longer}` gives it more, then `loopsup resume`"
_BOTH_ARE_UP = (
    "its time and all its iterations are used up meanwhile: `loopsup update --for {longer} --max-iterations {more}` "
    "gives it more of both, then `loopsup resume`"
)


def headline(loop: Status, now: int, zone: tzinfo | None) -> str:
    """State, reason and next step, like `waiting: the next wake is at 14:32:00, in 7m`."""
    state = loop["state"]
    match state:
        case "waiting":
            text = f"waiting: {next_wake(loop, now, zone)}{_ticks(loop, now, zone)}"
        case "queued":
            text = "queued: an iteration is due and starts as soon as the agent is free"
        case "running":
            text = f"running: iteration {loop['iterationCount']} of {loop['maxIterations']} is under way"
        case "paused":
            why, then = pause_words(loop)
            text = f"paused: {why}. {then[0].upper() + then[1:] if then[0] != '`' else then}."
        case "completed":
            text = "completed: the agent reports that the objective is reached"
        case "failed":
            text = "failed: the agent reports that the objective cannot be reached"
        case "stopped":
            text = "stopped: you ended it"
        case _:
            text = safe(state)
    if loop.get("late"):
        text += f"\nLATE: this wake was due {_due(loop, now, zone)} and has not been handed over"
    if loop.get("intent"):
        done = {"pause": "paused", "stop": "stopped"}.get(loop["intent"], safe(loop["intent"]))
        text += f"\nasked for: it will be {done} when this iteration has settled"
    return text


def wrapped(text: str, width: int) -> str:
    """Sentences that say what to do are never cut, only broken."""
    return "\n".join(line for part in text.split("\n") for line in wrap(part, width, after=INDENT))


def next_loop(status: Status) -> str:
    """How an ended loop's conversation is taken up again."""
    if status["loop"]["state"] not in ENDED:
        return ""
    if status["session"]["supervisor"]["alive"]:
        return "; `loopsup start` begins the next loop in this conversation"
    name = safe(status["session"]["name"])
    return f"; `loopsup start --session {name}` goes on in this conversation, `loopsup start` makes a new one"


def pause_words(loop: Status) -> tuple[str, str]:
    """Why the loop is paused and what to do next."""
    reason = safe(loop.get("pauseReason"))
    why, then = _PAUSED.get(reason, (reason, "`loopsup resume` goes on"))
    if reason not in ("iteration_limit", "unknown_version") and loop["iterationCount"] >= loop["maxIterations"]:
        then = _USED_UP.get(reason, _USED_UP[""])  # a resume alone would be refused
    if reason not in ("duration_limit", "unknown_version") and loop.get("deadlineRemainingMs") == 0:
        then = _BOTH_ARE_UP if loop["iterationCount"] >= loop["maxIterations"] else _TIME_IS_UP
    return why, then.format(longer=show_duration(_longer(loop)), more=_more(loop))


def _longer(loop: Status) -> int:
    """A time that really gives more: the next multiple with at least half a period left."""
    period, elapsed = int(loop.get("forMs") or SECOND), int(loop.get("calendarElapsedMs") or 0)
    return max(2, (elapsed + period // 2) // period + 1) * period


def _more(loop: Status) -> int:
    most = int(loop.get("maxIterations") or 0)
    return most + max(most, int(loop.get("iterationCount") or 0))


def next_wake(loop: Status, now: int, zone: tzinfo | None) -> str:
    """When the next iteration comes."""
    if loop.get("nextDueAt") is None:
        return f"no wake fits before its time is used up ({local_time(loop['deadlineAt'], now, zone)})"
    return f"the next wake is {_due(loop, now, zone)}"


def _ticks(loop: Status, now: int, zone: tzinfo | None) -> str:
    """A loop that waits for `loopsup tick` is only as true as the ticks are."""
    if loop.get("driver") != "tick":
        return ""
    last = loop.get("lastTickAt")
    if last is None:
        return ", fired by `loopsup tick`\nNO TICK has ever come; `loopsup install-timer` sets one up"
    text = f", fired by the first `loopsup tick` from then on; the last one came at {local_time(last, now, zone)}"
    silence = now - parse_instant(last)
    if loop.get("late") and silence > SILENT_MS:
        text += f"\nNO TICK has come for {span(silence)}; is its timer still there? (`loopsup install-timer`)"
    return text


def _due(loop: Status, now: int, zone: tzinfo | None) -> str:
    if loop.get("nextDueAt") is None:
        return "before now"
    left = parse_instant(loop["nextDueAt"]) - now
    how_long = f"in {wait_span(left)}" if left >= 0 else f"{span(-left)} ago"
    return f"at {local_time(loop['nextDueAt'], now, zone)} ({how_long})"
