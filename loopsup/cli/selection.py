"""Which session a verb means, and what its files say of it at this moment.

`--session NAME`, else `$LOOPSUP_SESSION`, else it follows from the directory (`store.sessions.choose`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopsup.cli.common import here
from loopsup.errors import NotFoundError, StorageError, UsageError
from loopsup.store import home, lock, sessions
from loopsup.store.identity import Identity
from loopsup.store.sessions import Entry

if TYPE_CHECKING:
    from loopsup.core.model import Loop

VARIABLE = "LOOPSUP_SESSION"


@dataclass(frozen=True, slots=True)
class Session:
    """One session, by its files. The folder may move (see `refreshed`), the name stays."""

    name: str
    folder: Path
    identity: Identity

    @property
    def socket(self) -> Path:
        """The path the supervisor wrote down; never computed."""
        return Path(self.identity.socket)

    def alive(self) -> bool:
        """A supervisor holds the session."""
        return lock.probe(self.folder) is not None

    def owner_pid(self) -> int | None:
        """Its process id, if it has one and has said so."""
        owner = lock.probe(self.folder)
        return None if owner is None else owner.pid

    def loop(self) -> Loop | None:
        """The loop's state in the journal."""
        from loopsup.store.journal import read_tail

        return read_tail(self.folder).loop

    def truth(self) -> Loop | None:
        """The loop as it truly stands: paused where it was active and its supervisor is gone."""
        loop = self.loop()
        if self.alive():
            return loop
        from loopsup.clock import supervisors_clock
        from loopsup.wire.status import without_owner

        return without_owner(loop, supervisors_clock(os.environ).now())

    def refreshed(self) -> Session:
        """The same session looked up again: the folder of a new one moves beside the agent's file."""
        return named(self.name)


def pick(name: str | None) -> Session:
    """The session a verb means. UsageError where there are several, NotFoundError where there is none."""
    wanted = wanted_name(name)
    try:
        if wanted is not None:
            return named(wanted)
        return of_entry(sessions.choose(home.find_home(), here()))
    except (NotFoundError, UsageError) as error:
        if name is None and wanted is not None:  # nothing was typed: say where the name comes from
            raise type(error)(f"{error.message} ({VARIABLE} names it)") from error
        raise


def wanted_name(name: str | None) -> str | None:
    """`--session`, else `$LOOPSUP_SESSION` (empty counts as unset)."""
    return name if name is not None else os.environ.get(VARIABLE) or None


def named(name: str) -> Session:
    """The session called `name`; NotFoundError."""
    return of_entry(sessions.get_session(home.find_home(), name))


def lookup(name: str, *, locked: bool = False) -> Session | None:
    """The session called `name`, if there is one. UsageError for a name no session can have.

    `locked`: the caller holds the lock of `sessions/`, for which the search for a missing name would wait.
    """
    try:
        return of_entry(sessions.get_session(home.find_home(), name, locked=locked))
    except NotFoundError:
        return None


def of_directory(directory: Path) -> list[Session]:
    """The sessions of exactly this directory that can be read, the most recently used first."""
    where = os.path.realpath(directory)
    entries = [
        entry
        for entry in sessions.list_sessions(home.find_home())
        if entry.identity is not None and os.path.realpath(entry.identity.cwd) == where
    ]
    return [of_entry(entry) for entry in sorted(entries, key=lambda entry: entry.last_at, reverse=True)]


def of_conversation(agent: str, conversation_id: str, file: Path | None) -> Session | None:
    """The session that serves a conversation of `agent`. Under the lock of `sessions/`: it may link it again."""
    from loopsup.store import folders

    where = home.find_home()
    if file is not None:
        name = folders.open_beside(where, file, sessions.new_name(where, file.parent))
        if name is not None:
            return named(name)
    entry = sessions.by_conversation(where, agent, conversation_id)
    return None if entry is None else of_entry(entry)


def of_entry(entry: Entry) -> Session:
    if entry.identity is None:
        raise StorageError(f"the session '{entry.name}' cannot be used: {entry.problem}; see: loopsup doctor")
    return Session(entry.name, entry.folder, entry.identity)


def listed(found: Iterable[Session]) -> str:
    return ", ".join(session.name for session in found)


def described(loop: Loop) -> str:
    """A loop in a few words, for a refusal."""
    from loopsup.core.reasons import words

    reason = getattr(loop.phase, "reason", None)
    state = loop.state.value if reason is None else f"paused, {words(reason.value)}"
    return f"{state}, iteration {loop.iteration_count} of {loop.policy.max_iterations}"


def left(session: Session) -> str:
    """What somebody reads who leaves: how the loop stands, and what to do about it."""
    from loopsup.core.model import Paused

    name, loop = session.name, session.refreshed().truth()
    if loop is None or loop.terminal:
        ended = "" if loop is None else f"the loop has ended ({loop.state.value}), "
        return f"left; {ended}`loopsup start --session {name} …` gives the conversation its next one"
    if isinstance(loop.phase, Paused):
        return f"left; the loop is paused, `loopsup resume --session {name}` goes on"
    return f"left; the loop goes on, `loopsup stop --session {name}` ends it"
