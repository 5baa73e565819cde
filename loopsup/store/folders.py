"""Making, moving and removing session folders.

A folder is made under `sessions/<name>`. Once the agent's session file S is known it moves beside it (S without
`.jsonl`, plus `.loopsup`) and `sessions/<name>` becomes a symlink: so there is one folder, and one lock, for each
conversation, whoever opens it. Callers hold `creation_lock`, except for `move_beside`, which takes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loopsup.errors import RefusedError, StorageError
from loopsup.store import lock as locks
from loopsup.store.files import storage_error, sync_dir
from loopsup.store.home import Home, check_private
from loopsup.store.identity import NAME as IDENTITY
from loopsup.store.identity import Identity, load_identity, save_identity
from loopsup.store.lock import LockHeldError, SessionLock, creation_lock, probe
from loopsup.store.sessions import check_name, valid_name

SUFFIX = ".loopsup"


def create(home: Home, identity: Identity) -> Path:
    """A new session in `sessions/<name>`; returns its folder. UsageError, RefusedError if the name is taken."""
    folder = _free(home, identity.name)
    _make(folder, identity)
    return folder


def create_beside(home: Home, identity: Identity, agent_file: Path) -> Path:
    """A new session of loopsup for an existing conversation: the folder beside the agent's file, and its link."""
    link = _free(home, identity.name)
    folder = beside(agent_file)
    if os.path.lexists(folder):
        raise RefusedError(f"{os.fsdecode(folder)} is there already; this conversation has a session")
    _make(folder, identity)
    _link(link, folder)
    return folder


def open_beside(home: Home, agent_file: Path, spare_name: str) -> str | None:
    """The name of the session that lives beside `agent_file`, linked again where it is not; None if none does.

    `spare_name`: the name to link it by where its own now means another session.
    """
    folder = beside(agent_file)
    if not os.path.lexists(folder):
        return None
    check_private(folder)
    where = os.path.realpath(folder)
    for each in sorted(home.sessions.iterdir()):
        if valid_name(each.name) and os.path.realpath(each) == where:
            return each.name
    link = home.sessions / load_identity(folder).name
    if os.path.lexists(link):
        link = _free(home, spare_name)
    _link(link, folder)
    return link.name


def beside(agent_file: Path) -> Path:
    """Where the folder of the conversation in `agent_file` (a file or a directory) belongs."""
    return agent_file.with_name(agent_file.name.removesuffix(".jsonl") + SUFFIX)


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the session is now and the lock that holds it. `copied`: files that were open are the old ones."""

    folder: Path
    lock: SessionLock
    copied: bool


def move_beside(home: Home, name: str, agent_file: Path, lock: SessionLock) -> Moved:
    """Move the folder of a new session beside the agent's file and leave a symlink. The caller holds `lock`.

    Across devices it is copied; then `lock` is exchanged for one on the copy, and open files must be opened
    again. RefusedError where a folder is there already; StorageError: it stays where it was, and can stay so.
    """
    source, target = home.sessions / name, beside(agent_file)
    with creation_lock(home.sessions):
        if os.path.lexists(target):
            raise RefusedError(f"{os.fsdecode(target)} is there already; this conversation has a session")
        swap = home.sessions / f".{name}.{os.urandom(4).hex()}"
        try:
            swap.symlink_to(target)
            try:
                source.rename(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                return _copy_beside(source, target, swap, lock)
            with _undone_on_failure(target, source):
                swap.rename(source)
            sync_dir(target.parent)
            sync_dir(home.sessions)
        except OSError as error:
            raise storage_error("cannot move the session to", target, error) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                swap.unlink()
    return Moved(target, lock, copied=False)


def remove(home: Home, name: str, lock: SessionLock | None = None) -> None:
    """Delete a session: its name, its folder, its socket. LockHeldError unless nobody, or the caller, owns it."""
    check_name(name)
    link = home.sessions / name
    folder = Path(os.path.realpath(link))
    if lock is None and folder.is_dir() and (owner := probe(folder)) is not None:
        raise LockHeldError(owner)
    ours = is_ours(home, name)
    socket: Path | None = None
    if ours:
        check_private(folder)
        with contextlib.suppress(StorageError):
            socket = Path(load_identity(folder).socket)
    try:
        if ours:
            gone = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
            folder.rename(gone)  # all at once: nobody makes a lock of its own in what is half removed
        if link.is_symlink():
            link.unlink()
        if ours:
            shutil.rmtree(gone)
        sync_dir(home.sessions)
    except OSError as error:
        raise storage_error("cannot remove", folder, error) from error
    if socket is not None and socket.suffix == ".sock":
        with contextlib.suppress(OSError):
            socket.unlink()


def is_ours(home: Home, name: str) -> bool:
    """A session's folder is where its name leads to, and not just one that is called like that."""
    folder = Path(os.path.realpath(home.sessions / name))
    if folder == Path(os.path.realpath(home.sessions), name):
        return folder.is_dir()
    return folder.suffix == SUFFIX and (folder / IDENTITY).is_file()


def _free(home: Home, name: str) -> Path:
    check_name(name)
    home.ensure()
    path = home.sessions / name
    if os.path.lexists(path):
        raise RefusedError(f"there is a session '{name}' already; give another name with --session NAME")
    return path


def _make(folder: Path, identity: Identity) -> None:
    """Complete or not at all: a crash leaves a hidden directory, never half a session."""
    fresh = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        fresh.mkdir(mode=0o700)
        with _removed_on_failure(fresh):
            save_identity(fresh, identity)
            fresh.rename(folder)
            sync_dir(folder.parent)
    except OSError as error:
        raise storage_error("cannot make the session in", folder.parent, error) from error


def _link(link: Path, folder: Path) -> None:
    try:
        link.symlink_to(folder)
        sync_dir(link.parent)
    except OSError as error:
        raise storage_error("cannot make the name", link, error) from error


def _copy_beside(source: Path, target: Path, swap: Path, lock: SessionLock) -> Moved:
    """The other device: the copy is complete and owned before anybody can find it, then the name changes over."""
    fresh = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    old = source.with_name(f".{source.name}.{os.urandom(4).hex()}")
    with _removed_on_failure(fresh):
        shutil.copytree(source, fresh, symlinks=True, ignore=lambda _dir, names: {locks.NAME} & set(names))
        fresh.chmod(0o700)
        new = SessionLock.acquire(fresh)
        try:
            os.sync()
            fresh.rename(target)
            with _undone_on_failure(target, fresh):
                source.rename(old)
                with _undone_on_failure(old, source):
                    swap.rename(source)
        except BaseException:
            new.release()
            raise
    sync_dir(target.parent)
    sync_dir(source.parent)
    lock.release()
    shutil.rmtree(old, ignore_errors=True)
    return Moved(target, new, copied=True)


@contextlib.contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _undone_on_failure(now: Path, before: Path) -> Iterator[None]:
    """Rename `now` back to `before` if what follows the rename fails."""
    try:
        yield
    except BaseException:
        now.rename(before)
        raise
