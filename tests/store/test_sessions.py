"""Which session a command means; one broken session spoils no other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopsup.core.events import Pause
from loopsup.core.model import Completed, Fixed, Loop, Moment, Paused, PauseReason, Phase, Policy, Waiting
from loopsup.errors import LoopsupError, NotFoundError, StorageError, UsageError
from loopsup.store.folders import create
from loopsup.store.home import Home
from loopsup.store.identity import Identity
from loopsup.store.journal import NAME as JOURNAL
from loopsup.store.journal import JournalAppender
from loopsup.store.lock import SessionLock
from loopsup.store.sessions import by_conversation, choose, list_sessions, new_name, sessions_here, valid_name

T0 = 1_791_590_400_000
ENDED = Completed(T0)
PAUSED = Paused(PauseReason.USER)
ACTIVE = Waiting(Moment(T0, 0))


def make(home: Home, name: str, cwd: Path, phase: Phase | None = None, at: int = T0) -> Path:
    folder = create(home, Identity(name, f"id-{name}", "demo", str(cwd), "/x.sock", T0, agent_session_id=f"a-{name}"))
    if phase is not None:
        with JournalAppender.open(folder) as journal:
            journal.append(Moment(at, 0), Pause(), Loop("l", "o", Policy(Fixed(1)), T0, phase))
    return folder


@dataclass(frozen=True)
class Given:
    name: str
    place: str
    phase: Phase | None = None
    live: bool = False
    at: int = T0


SEVERAL = "several sessions are open here (a, b); name one with --session NAME"


@pytest.mark.parametrize(
    ("given", "cwd", "chosen"),
    [
        ([], "p/q", NotFoundError),
        ([Given("a", "other", ACTIVE)], "p", NotFoundError),
        ([Given("a", "p/q", ACTIVE)], "p", NotFoundError),
        ([Given("a", "p", ACTIVE)], "p", "a"),
        ([Given("a", "p", PAUSED)], "p/q", "a"),
        ([Given("a", "p", ENDED)], "p", "a"),
        ([Given("a", "p")], "p", "a"),
        ([Given("a", "p", ENDED), Given("b", "p", PAUSED)], "p", "b"),
        ([Given("a", "p", ENDED, live=True), Given("b", "p", ENDED, at=T0 + 9)], "p", "a"),
        ([Given("a", "p", ENDED, at=T0 + 9), Given("b", "p", ENDED)], "p", "a"),
        ([Given("a", "p", ENDED), Given("b", "p", ENDED, at=T0 + 9)], "p", "b"),
        ([Given("a", "p", ACTIVE), Given("b", "p", PAUSED)], "p", SEVERAL),
        ([Given("a", "p", ACTIVE), Given("b", "p", live=True)], "p/q", SEVERAL),
        ([Given("a", "p", ACTIVE), Given("b", "p/q", ENDED)], "p/q", "b"),
        ([Given("a", "p", ACTIVE), Given("b", "p/q", PAUSED)], "p/q/r", "b"),
    ],
)
def test_the_session_follows_from_the_directory(
    home: Home, tmp_path: Path, given: list[Given], cwd: str, chosen: str | type[LoopsupError]
) -> None:
    (tmp_path / "p" / "q" / "r").mkdir(parents=True)
    locks = []
    for one in given:
        folder = make(home, one.name, tmp_path / one.place, one.phase, one.at)
        if one.live:
            locks.append(SessionLock.acquire(folder))
    if isinstance(chosen, type):
        with pytest.raises(chosen, match="begin one with: loopsup start"):
            choose(home, tmp_path / cwd)
    elif chosen == SEVERAL:
        with pytest.raises(UsageError) as caught:
            choose(home, tmp_path / cwd)
        assert str(caught.value) == SEVERAL
    else:
        assert choose(home, tmp_path / cwd).name == chosen
    for lock in locks:
        lock.release()


def test_directories_are_compared_by_what_they_are(home: Home, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    make(home, "a", tmp_path / "alias", ACTIVE)
    assert choose(home, tmp_path / "real").name == "a"


def test_a_named_session_is_that_one_or_none(home: Home, tmp_path: Path) -> None:
    make(home, "a", tmp_path, ENDED)
    assert choose(home, Path("/"), "a").name == "a"
    with pytest.raises(NotFoundError, match="there is no session 'b'; see: loopsup ls"):
        choose(home, tmp_path, "b")
    with pytest.raises(UsageError, match=r"'\.\./a' is no session name; use 1 to 64 of"):
        choose(home, tmp_path, "../a")
    with pytest.raises(NotFoundError, match="there is no session 'a'"):
        choose(Home(tmp_path / "none"), tmp_path, "a")
    assert not (tmp_path / "none").exists()


def test_where_none_is_found_those_that_cannot_be_read_are_named(home: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="or above it; begin one with: loopsup start"):
        choose(home, tmp_path)
    (make(home, "a", tmp_path, ENDED) / "session.toml").write_text('name = "a')
    make(home, "b", tmp_path, ENDED).chmod(0o777)
    with pytest.raises(NotFoundError, match=r"there are sessions that cannot be read \(a, b\), see: loopsup ls"):
        choose(home, tmp_path)


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", True), ("A.b_c-9", True), ("-a", True), ("a" * 64, True), ("a" * 65, False), ("", False), (".a", False),
     ("a/b", False), ("ä", False), ("a\n", False), ("a b", False), ("..", False)],
)  # fmt: skip
def test_names(name: str, valid: bool) -> None:
    assert valid_name(name) is valid


@pytest.mark.parametrize(
    ("cwd", "first"),
    [
        ("/w/proj", "proj"),
        ("/w/my proj (1)", "my-proj-1"),
        ("/w/.config", "config"),
        ("/", "session"),
        ("/w/ü", "session"),
        ("/w/" + "x" * 80, "x" * 64),
    ],
)
def test_new_names_come_from_the_directory(home: Home, cwd: str, first: str) -> None:
    made = []
    for _ in range(3):
        made.append(new_name(home, Path(cwd)))
        (home.sessions / made[-1]).mkdir()
    assert made == [first, first[:62] + "-2", first[:62] + "-3"]
    assert all(valid_name(name) for name in made)


def test_a_broken_session_is_a_row_and_no_obstacle(home: Home, tmp_path: Path) -> None:
    make(home, "good", tmp_path, ACTIVE)
    torn = make(home, "torn", tmp_path / "t", PAUSED)
    (torn / JOURNAL).write_bytes((torn / JOURNAL).read_bytes() + b'{"half')
    (home.sessions / "empty").mkdir(mode=0o700)
    (home.sessions / "gone").symlink_to(tmp_path / "nowhere")
    (home.sessions / "file").write_text("")
    (home.sessions / ".hidden").mkdir()
    bad = make(home, "open", tmp_path, ACTIVE)
    bad.chmod(0o777)
    rows = {
        entry.name: (entry.identity is not None, entry.loop is not None, entry.problem)
        for entry in list_sessions(home)
    }
    assert rows == {
        "good": (True, True, None),
        "torn": (True, True, rows["torn"][2]),
        "empty": (False, False, f"{home.sessions}/empty/session.toml is missing, so this is no session of loopsup"),
        "gone": (False, False, f"cannot use {home.sessions}/gone: No such file or directory"),
        "file": (False, False, f"{home.sessions}/file is not a directory; move it away"),
        "open": (False, False, rows["open"][2]),
    }
    assert str(rows["torn"][2]).startswith("1 line was skipped at the end of the journal")
    assert str(rows["open"][2]).startswith("other users may write in")
    assert choose(home, tmp_path).name == "good"
    with pytest.raises(StorageError, match="the session 'empty' cannot be used"):
        choose(home, tmp_path, "empty")


def test_looking_changes_nothing(home: Home, tmp_path: Path) -> None:
    """Case 194: also not the times of the files."""
    folder = make(home, "a", tmp_path, ACTIVE)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    list_sessions(home)
    choose(home, tmp_path)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before
    assert sessions_here(home, Path("/")) == []


def test_a_conversation_is_found_by_its_agents_id(home: Home, tmp_path: Path) -> None:
    make(home, "a", tmp_path)
    found = by_conversation(home, "demo", "a-a")
    assert found is not None
    assert found.folder == Path(os.path.realpath(home.sessions / "a"))
    assert by_conversation(home, "pi", "a-a") is None
