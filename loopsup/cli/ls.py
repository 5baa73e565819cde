"""`loopsup ls`: every session on this machine, its truth and its next wake.

Rules: a live supervisor is asked, all of them at once and for a bounded time; for the others the files speak,
in which nothing is said to be waiting, queued or running. A session that cannot be read is a row with its
problem, never the end of the list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopsup.cli import render
from loopsup.cli.common import JsonOption, out_json
from loopsup.errors import EXIT_DONE, LoopsupError
from loopsup.wire.control import Request
from loopsup.wire.times import parse_instant

if TYPE_CHECKING:
    from loopsup.core.model import Moment
    from loopsup.store.sessions import Entry

VERSION = 1
PATIENCE_S = 0.5  # for a supervisor's answer, which takes a few ms; one that is busy longer is shown by its files
ASKERS = 16  # at a time: 50 supervisors of which none answers still cost under 2 s
MAX_NAME = 24  # columns; longer names push the state away
MAX_STATE = 26

Ask = Callable[[Path], Mapping[str, Any] | None]
Status = Mapping[str, Any]


def ls(as_json: JsonOption = False) -> int:
    """Show every session on this machine."""
    from loopsup.clock import SystemClock
    from loopsup.store import home, sessions

    now = SystemClock().now()
    found = gather(sessions.list_sessions(home.find_home()), now, ask)
    if as_json:
        out_json({"version": VERSION, "sessions": found})
    else:
        for line in text_lines(found, now.wall, render.terminal_width(), None):
            render.write(line)
    return EXIT_DONE


def gather(entries: Sequence[Entry], now: Moment, asked: Ask) -> list[Status]:
    """The status object of every session, in the order given."""
    from concurrent.futures import ThreadPoolExecutor

    owned = [entry for entry in entries if entry.owner is not None and entry.identity is not None]
    answers: dict[str, Mapping[str, Any] | None] = {}
    if owned:
        with ThreadPoolExecutor(min(ASKERS, len(owned))) as askers:
            sockets = [Path(entry.identity.socket) for entry in owned if entry.identity is not None]
            answers = dict(zip((entry.name for entry in owned), askers.map(asked, sockets), strict=True))
    return [answers.get(entry.name) or from_files(entry, now) for entry in entries]


def ask(socket: Path) -> Mapping[str, Any] | None:
    """The supervisor's own word; None where it does not answer in time."""
    from loopsup import client

    try:
        return client.request(socket, Request("status"), PATIENCE_S).status
    except LoopsupError:
        return None


def from_files(entry: Entry, now: Moment) -> Status:
    """The status object as the files tell it."""
    from loopsup.wire.status import SessionFacts, status_object, without_owner

    alive = entry.owner is not None
    known = entry.identity
    facts = SessionFacts(
        name=entry.name,
        id="" if known is None else known.id,
        agent="" if known is None else known.agent,
        agent_session_id=None if known is None else known.agent_session_id,
        file=None if known is None else known.agent_file,
        cwd="" if known is None else known.cwd,
        alive=alive,
        responding=False,
        pid=None if entry.owner is None else entry.owner.pid,
        problem=entry.problem,
    )
    return status_object(facts, entry.loop if alive else without_owner(entry.loop, now), now)


def text_lines(found: Sequence[Status], now: int, width: int, zone: tzinfo | None) -> list[str]:
    """The list for people."""
    if not found:
        return ["no session on this machine; `loopsup start` makes one"]
    table = [("NAME", "AGENT", "STATE", "ITERATION", "NEXT WAKE", "DIRECTORY")]
    table += [_cells(status, now, zone) for status in found]
    limits = (MAX_NAME, MAX_NAME, MAX_STATE, width, width)
    columns = list(zip(*table, strict=True))
    widths = [
        min(limit, max(map(render.columns, column))) for limit, column in zip(limits, columns[:-1], strict=True)
    ]
    lines = []
    for cells in table:
        head = "  ".join(
            render.pad(render.one_line(cell, size), size) for cell, size in zip(cells[:-1], widths, strict=True)
        )
        lines += _fit(head, cells[-1], width)
    for status in found:
        if problem := status["session"].get("problem"):
            lines.append(render.one_line(f"{status['session']['name']}: {problem}", max(width, render.UNCUT)))
    return lines


def _cells(status: Status, now: int, zone: tzinfo | None) -> tuple[str, str, str, str, str, str]:
    session, loop = status["session"], status["loop"]
    supervisor = session["supervisor"]
    silent = supervisor["alive"] and not supervisor["responding"]
    if loop is None:
        state = "broken" if session["problem"] and not session["id"] else "no loop"
        count = wake = "-"
    else:
        reason = loop["pauseReason"]
        state = f"{loop['state']}: {reason}" if reason else loop["state"]
        count = f"{loop['iterationCount']}/{loop['maxIterations']}"
        wake = _wake(loop, now, zone)
    if silent:
        state += " (no answer)"
    return session["name"], session["agent"] or "-", state, count, wake, _short(session["cwd"])


def _wake(loop: Status, now: int, zone: tzinfo | None) -> str:
    if loop["nextDueAt"] is None:
        return "-"
    at = render.local_time(loop["nextDueAt"], now, zone)
    if loop["late"]:
        return f"LATE, {at}"
    left = parse_instant(loop["nextDueAt"]) - now
    return f"{at} (in {render.wait_span(left)})" if left > 0 else f"{at} (now)"


def _fit(head: str, last: str, width: int) -> list[str]:
    """The last column takes what is left; on a narrow terminal it goes, and the rest is cut."""
    room = width - render.columns(head) - 2
    if room >= len(render.INDENT) + 8:
        return [f"{head}  {render.one_line(last, room)}".rstrip()]
    return [render.fit(head.rstrip(), width)]


def _short(cwd: str) -> str:
    """`~` for the home directory."""
    home = os.environ.get("HOME", "")
    if home not in ("", "/") and (cwd == home or cwd.startswith(home + "/")):
        return "~" + cwd[len(home) :]
    return cwd
