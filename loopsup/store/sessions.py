"""The sessions of this machine: listing them, and finding the one a command means.

A session that cannot be read is an entry with a `problem`, never an error of the list. Nothing here changes
anything; making, moving and removing is `loopsup.store.folders`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from loopsup.errors import LoopsupError, NotFoundError, StorageError, UsageError
from loopsup.store.files import storage_error
from loopsup.store.home import Home, check_private
from loopsup.store.identity import Identity, load_identity
from loopsup.store.lock import Owner, creation_lock, probe

if TYPE_CHECKING:
    from loopsup.core.model import Loop
    from loopsup.store.journal import Tail

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Entry:
    """One session as its files tell it. `folder` is resolved; `identity` None: unreadable, see `problem`.

    `owner`: who holds the lock, None if nobody does. The journal is read when it is asked for, because a
    session with a live supervisor answers for itself.
    """

    name: str
    folder: Path
    identity: Identity | None
    owner: Owner | None
    unreadable: str | None = None

    @cached_property
    def tail(self) -> Tail:
        """The end of its journal; an empty one where it cannot be read (see `problem`)."""
        return self._read[0]

    @property
    def problem(self) -> str | None:
        """One sentence: why it cannot be read, or that journal lines are damaged."""
        return self.unreadable or self._read[1]

    @cached_property
    def _read(self) -> tuple[Tail, str | None]:
        from loopsup.store.journal import Tail, read_tail  # heavy, and often not needed

        if self.unreadable is not None:
            return Tail(None, 1), None
        try:
            tail = read_tail(self.folder)
        except LoopsupError as error:
            return Tail(None, 1), error.message
        return tail, tail.problem()

    @property
    def loop(self) -> Loop | None:
        return self.tail.loop

    @property
    def live(self) -> bool:
        """A candidate for commands: a live supervisor, or a loop that is active or paused."""
        return self.owner is not None or (self.loop is not None and not self.loop.terminal)

    @property
    def last_at(self) -> int:
        """Wall ms of the last thing known to have happened."""
        at = getattr(self.tail.last, "at", None)
        if isinstance(at, int):
            return at
        return 0 if self.identity is None else self.identity.created


def list_sessions(home: Home) -> list[Entry]:
    """Every session, in the order of names. StorageError only where the home itself cannot be used."""
    return [_entry(home, name) for name in _names(home)]


def get_session(home: Home, name: str, *, locked: bool = False) -> Entry:
    """The session called `name`. UsageError for an impossible name, NotFoundError, StorageError if unreadable.

    `locked`: the caller holds `creation_lock`, so no folder is on the move and there is nothing to wait for.
    """
    check_name(name)
    home.check()
    path = home.sessions / name
    if not locked and not path.exists() and home.sessions.is_dir():
        # While its folder is moved there is no such name for an instant. Where one cannot wait, look at once.
        with contextlib.suppress(StorageError), creation_lock(home.sessions):
            pass
    if not os.path.lexists(path):
        raise NotFoundError(f"there is no session '{name}'; see: loopsup ls")
    entry = _entry(home, name)
    if entry.identity is None:
        raise StorageError(f"the session '{name}' cannot be used: {entry.problem}; see: loopsup doctor")
    return entry


def peek(home: Home, name: str) -> Entry:
    """The session called `name`, also one that cannot be read. UsageError, NotFoundError."""
    check_name(name)
    if not home.check() or not os.path.lexists(home.sessions / name):
        raise NotFoundError(f"there is no session '{name}'; see: loopsup ls")
    return _entry(home, name)


def choose(home: Home, cwd: Path, name: str | None = None) -> Entry:
    """The session a command means: the named one, else the one that follows from the directory.

    Candidates are the sessions of `cwd`, or of its nearest parent that has any, which are `live`. One: it.
    Several: UsageError with their names. None: the one there that was closed last, or NotFoundError.
    """
    if name is not None:
        return get_session(home, name)
    here = sessions_here(home, cwd)
    if not here:
        raise NotFoundError(f"there is no session in {os.fsdecode(cwd)} or above it; {_way_on(home)}")
    candidates = [entry for entry in here if entry.live]
    if len(candidates) > 1:
        names = ", ".join(entry.name for entry in candidates)
        raise UsageError(f"several sessions are open here ({names}); name one with --session NAME")
    return candidates[0] if candidates else max(here, key=lambda entry: (entry.last_at, entry.name))


def _way_on(home: Home) -> str:
    """What to do where no session was found: one that cannot be read may be the one that was meant."""
    broken = [entry.name for entry in list_sessions(home) if entry.identity is None]
    if not broken:
        return "begin one with: loopsup start"
    return f"but there are sessions that cannot be read ({', '.join(broken)}), see: loopsup ls"


def sessions_here(home: Home, cwd: Path) -> list[Entry]:
    """The readable sessions of `cwd`, or of its nearest parent that has any."""
    known = [(name, os.path.realpath(identity.cwd)) for name, identity in _identities(home)]
    directory = Path(os.path.realpath(cwd))
    for place in (directory, *directory.parents):
        found = [name for name, where in known if where == str(place)]
        if found:
            return [_entry(home, name) for name in found]
    return []


def by_conversation(home: Home, agent: str, agent_session_id: str) -> Entry | None:
    """The session that serves this conversation of this agent, if one does."""
    for name, known in _identities(home):
        if known.agent == agent and known.agent_session_id == agent_session_id:
            return _entry(home, name)
    return None


def valid_name(name: str) -> bool:
    """`[A-Za-z0-9._-]{1,64}`, not starting with a dot."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """UsageError for a name no session can have."""
    if not valid_name(name):
        raise UsageError(f"{name!a} is no session name; use 1 to {MAX_NAME} of A-Z a-z 0-9 . _ - and no dot in front")


def new_name(home: Home, cwd: Path) -> str:
    """A free name for a session in `cwd`: the directory's, then with -2, -3, … Call it under `creation_lock`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", os.fsdecode(cwd.name)).strip(".-") or "session"
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        name = base[: MAX_NAME - len(suffix)] + suffix
        if not os.path.lexists(home.sessions / name):
            return name
        number += 1


def _names(home: Home) -> list[str]:
    if not home.check():
        return []
    try:
        return sorted(filter(valid_name, os.listdir(home.sessions)))  # noqa: PTH208 (names are wanted, not paths)
    except OSError as error:
        raise storage_error("cannot list", home.sessions, error) from error


def _identities(home: Home) -> Iterator[tuple[str, Identity]]:
    """What can be read of every session without looking at its journal."""
    for name in _names(home):
        with contextlib.suppress(StorageError):
            check_private(home.sessions / name)
            yield name, _named(load_identity(Path(os.path.realpath(home.sessions / name))), name)


def _named(identity: Identity, name: str) -> Identity:
    """In this home a session has the name it is found by: a conversation's folder may come from another home."""
    return identity if identity.name == name else replace(identity, name=name)


def _entry(home: Home, name: str) -> Entry:
    path = home.sessions / name
    identity: Identity | None = None
    owner, unreadable = None, None
    folder = path
    try:
        folder = Path(os.path.realpath(path))
        check_private(path)
        identity = _named(load_identity(folder), name)
        owner = probe(folder)
    except LoopsupError as error:
        unreadable = error.message
    return Entry(name, folder, identity, owner, unreadable)
