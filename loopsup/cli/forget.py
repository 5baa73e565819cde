"""`loopsup forget`: remove sessions that are over, with everything loopsup kept of them.

Only what is dead goes: no supervisor, no loop or heartbeat that could still go on, no unit that would bring it back.
A session that cannot be read goes only by its name, because nobody can say whether it is over. The conversation
itself is the agent's and stays.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopsup.cli import selection
from loopsup.cli.common import JsonOption, SessionOption, here, not_for_agents, out_json, warn
from loopsup.core.durations import parse
from loopsup.errors import EXIT_DONE, LoopsupError, NotFoundError, RefusedError, StorageError, UsageError

if TYPE_CHECKING:
    from loopsup.store.home import Home
    from loopsup.store.sessions import Entry

VERSION = 1

EndedOption = Annotated[bool, typer.Option("--ended", help="Every session on this machine that is over.")]
OlderOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="DUR", help="With --ended: only where nothing has happened for so long."),
]


def forget(
    session: SessionOption = None,
    ended: EndedOption = False,
    older_than: OlderOption = None,
    as_json: JsonOption = False,
) -> int:
    """Remove a session that is over; its conversation stays."""
    if ended and session is not None:
        raise UsageError("--session means one session and --ended all that are over; give one of the two")
    if older_than is not None and not ended:
        raise UsageError("--older-than belongs to --ended")
    before = _before(older_than)
    not_for_agents("remove sessions")
    from loopsup.store.home import find_home
    from loopsup.store.lock import creation_lock
    from loopsup.store.sessions import list_sessions

    home = find_home()
    if not home.check():
        if not ended:
            raise NotFoundError("there is no session on this machine")
        return _tell([], as_json=as_json)
    with creation_lock(home.sessions):
        if not ended:
            entry = _one(home, session)
            return _tell([entry] if _removed(home, entry, named=True) else [], as_json=as_json)
        gone, troubles = _all_removed(home, [each for each in list_sessions(home) if _over(each, before)])
    if gone or as_json or not troubles:
        _tell(gone, as_json=as_json)
    warn(troubles)
    return StorageError.exit if troubles else EXIT_DONE


def _before(older_than: str | None) -> int | None:
    """The wall ms before which the last thing must have happened."""
    from loopsup.clock import wall_ms

    if older_than is None:
        return None
    try:
        return wall_ms() - parse(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}") from error


def _one(home: Home, name: str | None) -> Entry:
    """The session that is meant; one that cannot be read is found, too."""
    from loopsup.store.sessions import choose, peek

    wanted = selection.wanted_name(name)
    if wanted is not None:
        return peek(home, wanted)
    entry = choose(home, here())
    if entry.problem is not None:
        raise RefusedError(
            f"not all of session '{entry.name}' can be read ({entry.problem}), so nobody can say whether it is over; "
            f"name it to remove it all the same: loopsup forget --session {entry.name}"
        )
    return entry


def _over(entry: Entry, before: int | None) -> bool:
    known = entry.identity is not None and entry.problem is None
    return known and _kept(entry) is None and (before is None or entry.last_at < before)


def _kept(entry: Entry) -> str | None:
    """Why it must stay; None: it is over."""
    name = entry.name
    if entry.owner is not None:
        return f"session '{name}' is open; close it first: loopsup close --session {name}"
    if entry.loop is not None and not entry.loop.terminal:
        return f"the loop of session '{name}' can still go on; end it first: loopsup stop --session {name}"
    if _heartbeat_lasts(entry):
        way = f"loopsup heartbeat stop --session {name}"
        return f"the heartbeat of session '{name}' can still go on; end it first: {way}"
    if entry.identity is not None and entry.identity.enabled:
        return f"session '{name}' comes back after a reboot; undo that first: loopsup disable --session {name}"
    return None


def _heartbeat_lasts(entry: Entry) -> bool:
    """It is paused, and could be brought back. One that cannot be read could not."""
    from loopsup.clock import supervisors_clock
    from loopsup.core.heartbeat import lasts
    from loopsup.store import heartbeat

    try:
        return lasts(heartbeat.load(entry.folder), supervisors_clock(os.environ).now())
    except LoopsupError:
        return False


def _removed(home: Home, entry: Entry, *, named: bool) -> bool:
    """Remove it under its lock, so that nobody opens it meanwhile. Somebody was faster: not removed."""
    from loopsup.store.folders import is_ours, remove
    from loopsup.store.lock import LockHeldError, SessionLock
    from loopsup.store.sessions import peek

    if (why := _kept(entry)) is not None and named:
        raise RefusedError(why)
    if entry.folder.is_file():
        raise RefusedError(f"{entry.unreadable}; no session of loopsup is a file, so it is not removed")
    if not is_ours(home, entry.name):  # a name that leads nowhere, as the agent's folder was deleted, or elsewhere
        remove(home, entry.name)
        return True
    try:
        lock = SessionLock.acquire(entry.folder)
    except LockHeldError:
        if named:
            raise
        return False
    try:
        now = replace(peek(home, entry.name), owner=None)  # which is us
        if (why := _kept(now)) is None:
            remove(home, entry.name, lock)
        elif named:
            raise RefusedError(why)
        return why is None
    finally:
        lock.release()


def _all_removed(home: Home, over: list[Entry]) -> tuple[list[Entry], list[str]]:
    """Those that are gone, and a sentence for each that cannot be removed; it keeps no other."""
    gone, troubles = [], []
    for entry in over:
        try:
            if _removed(home, entry, named=False):
                gone.append(entry)
        except StorageError as error:
            troubles.append(f"session '{entry.name}' stays: {error.message}")
    return gone, troubles


def _tell(gone: list[Entry], *, as_json: bool) -> int:
    if as_json:
        out_json({"version": VERSION, "forgotten": [_row(each) for each in gone]})
        return EXIT_DONE
    from loopsup.cli import render

    for each in gone:
        render.write(render.safe(f"removed session '{each.name}'{_stays(each)}"))
    if not gone:
        render.write("no session is over; see: loopsup ls")
    return EXIT_DONE


def _stays(entry: Entry) -> str:
    file = None if entry.identity is None else entry.identity.agent_file
    return "" if file is None else f"; its conversation stays: {file}"


def _row(entry: Entry) -> dict[str, Any]:
    known = entry.identity
    return {
        "name": entry.name,
        "agent": None if known is None else known.agent,
        "cwd": None if known is None else known.cwd,
        "file": None if known is None else known.agent_file,
    }
