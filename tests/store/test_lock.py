"""Ownership with real processes: one owner, gone with its process, never disturbed by who only looks."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from loopsup.cli import launch
from loopsup.errors import RefusedError, StorageError
from loopsup.store import lock as locks
from loopsup.store.lock import NAME, LockHeldError, Owner, SessionLock, creation_lock, probe
from tests.store.conftest import Spawn

HOLD = """
import sys
from pathlib import Path
from loopsup.store.lock import SessionLock
lock = SessionLock.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
LOOK = """
import sys
from pathlib import Path
from loopsup.store.lock import probe
print("looking", flush=True)
while True:
    probe(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_the_owner(folder: Path, spawn: Spawn) -> None:
    """Case 106."""
    owner = spawn(HOLD, str(folder))
    assert owner.stdout is not None
    assert owner.stdout.readline() == "held\n"
    assert probe(folder) == Owner(owner.pid)
    with pytest.raises(LockHeldError, match=f"owned by process {owner.pid}") as caught:
        SessionLock.acquire(folder)
    assert (caught.value.owner, caught.value.exit) == (Owner(owner.pid), RefusedError.exit)
    owner.communicate("", timeout=60)
    assert probe(folder) is None


@pytest.mark.slow
def test_a_killed_owner_leaves_the_lock_at_once_whatever_its_file_says(folder: Path, spawn: Spawn) -> None:
    """Case 107: the pid of the dead owner may by now be another program's."""
    owner = spawn(HOLD, str(folder))
    assert owner.stdout is not None
    owner.stdout.readline()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(60)
    assert (folder / NAME).read_text() == f"{owner.pid}\n"
    (folder / NAME).write_text("1\n")  # init lives
    assert probe(folder) is None
    with SessionLock.acquire(folder):
        assert probe(folder) == Owner(os.getpid())


@pytest.mark.slow
def test_lookers_do_not_keep_a_taker_out(folder: Path, spawn: Spawn) -> None:
    SessionLock.acquire(folder).release()
    lookers = [spawn(LOOK, str(folder)) for _ in range(2)]
    for looker in lookers:
        assert looker.stdout is not None
        looker.stdout.readline()
    for _ in range(20):
        with SessionLock.acquire(folder):
            assert probe(folder) == Owner(os.getpid())


def test_a_looker_is_not_taken_for_an_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SessionLock.acquire(folder).release()
    looker = os.open(folder / NAME, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            os.close(looker)

    monkeypatch.setattr(locks, "OWNER_TRIES", 1)
    monkeypatch.setattr(time, "sleep", nap)
    with SessionLock.acquire(folder):
        assert len(naps) == 3


def test_release_is_complete_and_may_be_said_twice(folder: Path) -> None:
    assert probe(folder) is None
    lock = SessionLock.acquire(folder)
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()
    assert (probe(folder), (folder / NAME).read_text()) == (None, "")


def test_the_lock_moves_with_its_folder(folder: Path) -> None:
    moved = folder.with_name("moved")
    with SessionLock.acquire(folder):
        folder.rename(moved)
        with pytest.raises(LockHeldError):
            SessionLock.acquire(moved)
    assert probe(moved) is None


def test_an_owner_that_has_not_written_its_pid_is_still_an_owner(folder: Path) -> None:
    with SessionLock.acquire(folder):
        (folder / NAME).write_bytes(b"\xff not a pid")
        assert probe(folder) == Owner(None)
        with pytest.raises(LockHeldError, match="owned by another process"):
            SessionLock.acquire(folder)


def test_a_symlink_is_no_lock(folder: Path, tmp_path: Path) -> None:
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        SessionLock.acquire(folder)
    with pytest.raises(StorageError, match="symbolic link"):
        probe(folder)


def test_making_sessions_is_one_at_a_time(folder: Path) -> None:
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with creation_lock(folder):
            order.append("second")

    thread = threading.Thread(target=second)
    with creation_lock(folder):
        thread.start()
        assert entered.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


def test_waiting_to_make_a_session_has_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "CREATION_TRIES", 2)
    with creation_lock(folder), pytest.raises(StorageError, match="another loopsup command"), creation_lock(folder):
        pass


def test_a_second_start_waits_longer_than_the_first_may_hold_it_up() -> None:
    """`start` holds the lock until its supervisor owns the session; under load that takes more than ten seconds."""
    assert locks.CREATION_TRIES * locks.CREATION_RETRY_S > launch.OWNED_TIMEOUT_S
