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
from loopsup.cli.status_words import NOT_ANSWERING
from loopsup.core.reasons import short
from loopsup.errors import EXIT_DONE, LoopsupError
from loopsup.wire.control import Request
from loopsup.wire.times import parse_instant

if TYPE_CHECKING:
    from loopsup.core.model import Moment
    from loopsup.store.sessions import Entry

VERSION = 1
PATIENCE_S = 0.5  # for a supervisor's answer, which takes a few ms; one that is busy longer is shown by its files
ASKERS = 16  # at a time: 50 supervisors of which none answers still cost under 2 s
HEAD = ("NAME", "AGENT", "STATE", "ITERATION", "NEXT WAKE", "DIRECTORY")
DROPPED = ("DIRECTORY", "AGENT", "ITERATION")  # in this order, on a narrow terminal
LIMITS = {"NAME": 24, "AGENT": 24, "STATE": 38}  # columns; longer names push the state away
MIN_NAME, MIN_STATE, MIN_DIRECTORY = 4, 7, 10  # columns below which nothing is recognised
GAP = "  "

Ask = Callable[[Path], Mapping[str, Any] | None]
Status = Mapping[str, Any]


def ls(as_json: JsonOption = False) -> int:
    """Show every session on this machine."""
    from loopsup.clock import supervisors_clock
    from loopsup.store import home, sessions

    now = supervisors_clock(os.environ).now()
    found = gather(sessions.list_sessions(home.find_home()), now, ask)
    if as_json:
        out_json({"version": VERSION, "sessions": found})
    else:
        for line in text_lines(found, now.wall, render.terminal_width(), None):
            render.write(line)
    return EXIT_DONE


def gather(entries: Sequence[Entry], now: Moment, asked: Ask) -> list[Status]:
    """The status object of every session, in the order given."""
    said = answers(entries, asked)
    return [said.get(entry.name) or from_files(entry, now) for entry in entries]


def answers(entries: Sequence[Entry], asked: Ask) -> Mapping[str, Status | None]:
    """What the living supervisors say, by the names of their sessions; None where one does not answer in time."""
    from concurrent.futures import ThreadPoolExecutor

    owned = [entry for entry in entries if entry.owner is not None and entry.identity is not None]
    if not owned:
        return {}
    with ThreadPoolExecutor(min(ASKERS, len(owned))) as askers:
        sockets = [Path(entry.identity.socket) for entry in owned if entry.identity is not None]
        return dict(zip((entry.name for entry in owned), askers.map(asked, sockets), strict=True))


def ask(socket: Path) -> Mapping[str, Any] | None:
    """The supervisor's own word; None where it does not answer in time."""
    from loopsup import client

    try:
        return client.request(socket, Request("status"), PATIENCE_S).status
    except LoopsupError:
        return None


def from_files(entry: Entry, now: Moment) -> Status:
    """The status object as the files tell it."""
    from loopsup.offline import heartbeat_status
    from loopsup.store import ticks
    from loopsup.store.home import find_home
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
        last_tick_at=ticks.last(find_home()),
        problem=entry.problem or (NOT_ANSWERING if alive and known is not None else None),
    )
    beat = heartbeat_status(entry.folder, alive=alive)
    return status_object(facts, entry.loop if alive else without_owner(entry.loop, now), now, heartbeat=beat)


def text_lines(found: Sequence[Status], now: int, width: int, zone: tzinfo | None) -> list[str]:
    """The list for people. What does not fit goes column by column; name, state and next wake stay to the last."""
    if not found:
        return ["no session on this machine; `loopsup start` makes one"]
    table = [HEAD, *(_cells(status, now, zone) for status in found)]
    columns = list(range(len(HEAD)))
    for dropped in DROPPED:
        if sum(_widths(table, columns, width)) + len(GAP) * (len(columns) - 1) <= width:
            break
        columns.remove(HEAD.index(dropped))
    widths = _widths(table, columns, width)
    spare = width - sum(widths) - len(GAP) * (len(widths) - 1)
    if spare < 0:  # name, state, wake on a very narrow one: the name gives way, then the state
        for at, least in ((0, MIN_NAME), (1, MIN_STATE)):
            taken = min(-spare, max(0, widths[at] - least))
            widths[at], spare = widths[at] - taken, spare + taken
    lines = []
    for cells in table:
        shown = [render.pad(render.one_line(cells[at], size), size) for at, size in zip(columns, widths, strict=True)]
        lines.append(render.fit(GAP.join(shown).rstrip(), width))
    for status in found:
        problem = status["session"].get("problem")
        if problem and problem != NOT_ANSWERING:  # that stands in its row already
            line = f"{render.safe(status['session']['name'])}: {render.one_line(problem, render.UNCUT)}"
            lines += render.wrap(line, width, after=render.INDENT)
    return lines


def _widths(table: Sequence[Sequence[str]], columns: Sequence[int], width: int) -> list[int]:
    """What each column takes; the directory is content with little, and gets what is left."""
    sizes = [max(render.columns(render.one_line(cells[at], width)) for cells in table) for at in columns]
    sizes = [min(size, LIMITS.get(HEAD[at], width)) for at, size in zip(columns, sizes, strict=True)]
    if columns[-1] == HEAD.index("DIRECTORY"):
        room = width - sum(sizes[:-1]) - len(GAP) * (len(sizes) - 1)
        sizes[-1] = min(sizes[-1], max(room, MIN_DIRECTORY))
    return sizes


def _cells(status: Status, now: int, zone: tzinfo | None) -> tuple[str, str, str, str, str, str]:
    session, loop = status["session"], status["loop"]
    supervisor = session["supervisor"]
    silent = supervisor["alive"] and not supervisor["responding"]
    if loop is None:
        state = "broken" if session["problem"] and not session["id"] else "no loop"
        count = wake = "-"
    else:
        reason = loop["pauseReason"]
        state = f"{loop['state']}: {short(reason)}" if reason else loop["state"]
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


def _short(cwd: str) -> str:
    """`~` for the home directory."""
    home = os.environ.get("HOME", "")
    if home not in ("", "/") and (cwd == home or cwd.startswith(home + "/")):
        return "~" + cwd[len(home) :]
    return cwd
