"""More sessions live than `[reaper] session_cap` allows: the oldest idle ones are asked to close.

The one asked decides, by the same question as the other reapers; nobody ends another's session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopsup.errors import ClosingError, LoopsupError
from loopsup.store.home import Home
from loopsup.store.sessions import list_sessions
from loopsup.wire.control import ANSWER_TIMEOUT_S, MAX_LINE, Request, decode_response, encode_request


@dataclass(frozen=True, slots=True)
class Live:
    """A session with a supervisor. `at`: when something last happened in it, in seconds since the epoch."""

    name: str
    socket: Path
    at: float


async def enforce(home: Home, cap: int, own: str, ask_own: Callable[[], bool]) -> None:
    """Ask as many as there are too many, the one that has been idle longest first."""
    found = await asyncio.to_thread(live, home)
    over = len(found) - cap
    for session in found:
        if over <= 0:
            return
        closes = ask_own() if session.name == own else await ask(session.socket)
        over -= closes


def live(home: Home) -> list[Live]:
    """The live sessions, the one that has been idle longest first."""
    found = []
    with contextlib.suppress(LoopsupError):
        for entry in list_sessions(home):
            if entry.owner is not None and entry.identity is not None:
                at = _last_event(entry.folder) or entry.identity.created / 1000
                found.append(Live(entry.name, Path(entry.identity.socket), at))
    return sorted(found, key=lambda session: (session.at, session.name))


def _last_event(folder: Path) -> float | None:
    with contextlib.suppress(OSError):
        return (folder / "events.jsonl").stat().st_mtime
    return None


def _ours(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


async def ask(path: Path) -> bool:
    """Whether the session behind this socket closes now, or does already."""
    try:
        if not _ours(path):
            return False
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
            try:
                writer.write(encode_request(Request("reap")))
                response = decode_response(await reader.readline())
            finally:
                writer.close()
    except (OSError, ValueError, LoopsupError):  # TimeoutError is an OSError
        return False
    return response.error is None or isinstance(response.error, ClosingError)
