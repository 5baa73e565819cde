"""`loopsup top`: every session on this machine on the whole screen, kept up to date; who needs a person comes first.

It only looks: no key changes a session, and leaving changes nothing. Without a terminal `ls` is the same, once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Any

from loopsup.cli import ls
from loopsup.errors import EXIT_DONE, UsageError

Status = Mapping[str, Any]

# Paused by one of these a loop goes on only if somebody does something; the others are somebody's own doing.
WAITS_FOR_A_PERSON = frozenset({"blocked", "duration_limit", "iteration_limit", "protocol_error", "supervisor_lost"})
RANKS = ("needs you", "running", "queued", "waiting", "paused", "ended", "no loop")
ENDED = frozenset({"completed", "failed", "stopped"})


def top() -> int:
    """Watch every session on this machine."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal; in a script use: loopsup ls --json")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("top needs a terminal that can do more than TERM says; use: loopsup ls")
    from loopsup.cli import top_view

    top_view.run(look)
    return EXIT_DONE


def look() -> list[Status]:
    """The status of every session as it is now. StorageError where the state home cannot be used."""
    from loopsup.clock import supervisors_clock
    from loopsup.store import home, sessions

    return ls.gather(sessions.list_sessions(home.find_home()), supervisors_clock(os.environ).now(), ls.ask)


def rank(status: Status) -> str:
    """What kind of a session it is, as one of `RANKS`."""
    loop, session = status["loop"], status["session"]
    if session["supervisor"]["alive"] and not session["supervisor"]["responding"]:
        return "needs you"
    if loop is None:
        return "needs you" if session["problem"] else "no loop"
    if loop["late"] or loop["question"] or loop["pauseReason"] in WAITS_FOR_A_PERSON:
        return "needs you"
    state = str(loop["state"])
    return "ended" if state in ENDED else state


def ordered(found: Iterable[Status]) -> list[Status]:
    """Whoever needs a person first, then what runs, then by the next wake."""

    def key(status: Status) -> tuple[int, str, str]:
        due = "" if status["loop"] is None else status["loop"]["nextDueAt"] or ""
        return RANKS.index(rank(status)), due, status["session"]["name"]

    return sorted(found, key=key)


def heading(found: Sequence[Status]) -> str:
    """`5 sessions: 1 needs you, 2 running, 2 waiting`."""
    ranks = [rank(status) for status in found]
    counts = ", ".join(f"{ranks.count(each)} {each}" for each in RANKS if each in ranks)
    many = f"{len(found)} session{'' if len(found) == 1 else 's'}"
    return f"{many}: {counts}" if counts else "no session"


def text_lines(found: Sequence[Status], now: int, width: int, zone: tzinfo | None) -> list[str]:
    """The lines of the screen below the heading."""
    return ls.text_lines(ordered(found), now, width, zone)
