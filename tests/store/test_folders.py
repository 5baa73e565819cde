"""Making, moving and removing session folders."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.events import Pause
from loopsup.core.model import Moment
from loopsup.errors import NotFoundError, RefusedError, StorageError, UsageError
from loopsup.store import folders
from loopsup.store.folders import beside, create, create_beside, move_beside, open_beside, remove
from loopsup.store.home import Home
from loopsup.store.identity import NAME, Identity, load_identity
from loopsup.store.journal import JournalAppender, read_tail
from loopsup.store.lock import LockHeldError, Owner, SessionLock, probe
from loopsup.store.sessions import get_session

IDENTITY = Identity("w", "s1", "pi", "/w", "/x.sock", 0)


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    (tmp_path / "agent").mkdir()
    return tmp_path / "agent" / "2026_a1.jsonl"


def test_beside() -> None:
    assert beside(Path("/s/2026_a1.jsonl")) == Path("/s/2026_a1.loopsup")
    assert beside(Path("/s/0-1-2")) == Path("/s/0-1-2.loopsup")


def test_a_session_is_made_private_and_once(home: Home) -> None:
    folder = create(home, IDENTITY)
    assert (folder, oct(folder.stat().st_mode & 0o777)) == (home.sessions / "w", "0o700")
    assert load_identity(folder) == IDENTITY
    with pytest.raises(RefusedError, match="there is a session 'w' already; give another name with --session NAME"):
        create(home, IDENTITY)
    with pytest.raises(UsageError):
        create(home, replace(IDENTITY, name=".x"))


def test_what_cannot_be_made_leaves_nothing(home: Home) -> None:
    with pytest.raises(UsageError, match="not valid UTF-8"):
        create(home, replace(IDENTITY, cwd="\udcff"))
    assert os.listdir(home.sessions) == []


def test_it_moves_beside_the_agents_file_with_its_lock(home: Home, agent_file: Path) -> None:
    folder = create(home, IDENTITY)
    lock = SessionLock.acquire(folder)
    with JournalAppender.open(folder) as journal:
        moved = move_beside(home, "w", agent_file, lock)
        journal.append(Moment(1, 1), Pause(), None)  # an open journal goes on in the moved folder
    assert (moved.folder, moved.lock, moved.copied) == (beside(agent_file), lock, False)
    assert (home.sessions / "w").readlink() == moved.folder
    assert sorted(os.listdir(home.sessions)) == [".lock", "w"]
    assert get_session(home, "w").owner == Owner(os.getpid())
    assert read_tail(moved.folder).next_seq == 2
    lock.release()
    assert get_session(home, "w").owner is None


def other_device(monkeypatch: pytest.MonkeyPatch, source: Path, target: Path) -> None:
    """Renames from `source` to `target` fail as they do between file systems."""
    real = Path.rename

    def rename(self: Path, to: Path) -> Path:
        if (self, to) == (source, target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return real(self, to)

    monkeypatch.setattr(Path, "rename", rename)


def test_across_devices_it_is_copied_and_stays_owned(
    home: Home, agent_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create(home, IDENTITY)
    lock = SessionLock.acquire(folder)
    (folder / "state").mkdir()
    (folder / "state" / "x").write_text("kept")
    other_device(monkeypatch, folder, beside(agent_file))
    moved = move_beside(home, "w", agent_file, lock)
    assert (moved.folder, moved.copied) == (beside(agent_file), True)
    assert moved.lock is not lock
    assert probe(moved.folder) == Owner(os.getpid())
    assert (moved.folder / "state" / "x").read_text() == "kept"
    assert load_identity(home.sessions / "w") == IDENTITY
    assert sorted(os.listdir(home.sessions)) == [".lock", "w"]
    assert os.listdir(agent_file.parent) == [moved.folder.name]
    assert oct(moved.folder.stat().st_mode & 0o777) == "0o700"
    moved.lock.release()
    assert probe(moved.folder) is None


def test_a_copy_that_fails_leaves_the_session_where_it_is(
    home: Home, agent_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create(home, IDENTITY)
    os.mkfifo(folder / "pipe")
    other_device(monkeypatch, folder, beside(agent_file))
    with SessionLock.acquire(folder) as lock, pytest.raises(StorageError, match="cannot move the session to"):
        move_beside(home, "w", agent_file, lock)
    assert sorted(os.listdir(home.sessions)) == [".lock", "w"]
    assert os.listdir(agent_file.parent) == []
    assert load_identity(folder) == IDENTITY


@pytest.mark.parametrize("across", [False, True])
def test_a_name_that_cannot_change_over_is_put_back(
    home: Home, agent_file: Path, monkeypatch: pytest.MonkeyPatch, across: bool
) -> None:
    folder, real = create(home, IDENTITY), Path.rename

    def rename(self: Path, to: Path) -> Path:
        if self.is_symlink() or (across and (self, to) == (folder, beside(agent_file))):
            raise OSError(errno.EACCES if self.is_symlink() else errno.EXDEV, "no")
        return real(self, to)

    monkeypatch.setattr(Path, "rename", rename)
    with SessionLock.acquire(folder) as lock:
        with pytest.raises(StorageError, match="cannot move the session to"):
            move_beside(home, "w", agent_file, lock)
        assert probe(folder) == Owner(os.getpid())
    assert (os.listdir(agent_file.parent), load_identity(folder)) == ([], IDENTITY)
    assert sorted(os.listdir(home.sessions)) == [".lock", "w"]


def test_a_missing_place_leaves_the_session_where_it_is(home: Home, tmp_path: Path) -> None:
    folder = create(home, IDENTITY)
    with SessionLock.acquire(folder) as lock, pytest.raises(StorageError, match="cannot move the session to"):
        move_beside(home, "w", tmp_path / "none" / "s.jsonl", lock)
    assert load_identity(folder) == IDENTITY
    assert sorted(os.listdir(home.sessions)) == [".lock", "w"]


def test_a_folder_in_the_way_is_never_replaced(home: Home, agent_file: Path) -> None:
    folder = create(home, IDENTITY)
    beside(agent_file).mkdir()
    with SessionLock.acquire(folder) as lock, pytest.raises(RefusedError, match="this conversation has a session"):
        move_beside(home, "w", agent_file, lock)
    with pytest.raises(RefusedError, match="this conversation has a session"):
        create_beside(home, replace(IDENTITY, name="v"), agent_file)
    assert load_identity(folder) == IDENTITY


def test_an_adopted_conversation_has_its_folder_beside_it(home: Home, agent_file: Path, tmp_path: Path) -> None:
    assert open_beside(home, agent_file, "spare") is None
    folder = create_beside(home, IDENTITY, agent_file)
    assert (folder, open_beside(home, agent_file, "spare")) == (beside(agent_file), "w")
    assert load_identity(home.sessions / "w") == IDENTITY

    elsewhere = Home(tmp_path / "other")
    elsewhere.ensure()
    assert open_beside(elsewhere, agent_file, "spare") == "w"
    third = Home(tmp_path / "third")
    third.ensure()
    create(third, IDENTITY)
    assert open_beside(third, agent_file, "spare") == "spare"
    assert open_beside(third, agent_file, "another") == "spare"  # not one more name at each look
    spare = get_session(third, "spare")
    assert spare.identity == replace(IDENTITY, name="spare")  # here `w` is another session
    with SessionLock.acquire(third.sessions / "spare"), pytest.raises(LockHeldError):
        SessionLock.acquire(elsewhere.sessions / "w")


def test_removing_takes_name_folder_and_socket(home: Home, agent_file: Path, tmp_path: Path) -> None:
    socket = tmp_path / "x.sock"
    socket.write_text("")
    create(home, replace(IDENTITY, name="v"))
    create_beside(home, replace(IDENTITY, socket=str(socket)), agent_file)
    agent_file.write_text("the agent's own")
    remove(home, "v")
    remove(home, "w")
    assert os.listdir(home.sessions) == []
    assert (agent_file.read_text(), os.listdir(agent_file.parent)) == ("the agent's own", [agent_file.name])
    assert not socket.exists()
    with pytest.raises(NotFoundError):
        get_session(home, "w")


def test_an_owned_session_is_removed_only_by_its_owner(home: Home) -> None:
    folder = create(home, IDENTITY)
    with SessionLock.acquire(folder) as lock:
        with pytest.raises(LockHeldError, match=f"owned by process {os.getpid()}"):
            remove(home, "w")
        assert (folder / NAME).exists()
        remove(home, "w", lock)
    assert not folder.exists()


def test_a_name_that_leads_astray_removes_only_the_name(home: Home, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (home.sessions / "w").symlink_to(precious)
    remove(home, "w")
    assert (precious.is_dir(), os.listdir(home.sessions)) == (True, [])
    assert folders.SUFFIX == ".loopsup"
