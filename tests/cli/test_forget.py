"""`loopsup forget`: only what is over goes, and all of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.cli import forget
from loopsup.core.heartbeat import Heartbeat, Rest
from loopsup.core.limits import HOUR
from loopsup.core.model import Completed, Loop, Paused, PauseReason, Stopped
from loopsup.errors import StorageError
from loopsup.store import folders
from loopsup.store import heartbeat as heartbeats
from loopsup.store.home import Home
from loopsup.store.identity import load_identity, save_identity
from loopsup.store.lock import SessionLock
from tests.cli.conftest import Run
from tests.cli.support import NOW, Result, Sessions, a_loop

OVER = a_loop(Stopped(NOW.wall))


def names(sessions: Sessions) -> list[str]:
    return sorted(name for name in os.listdir(sessions.home.sessions) if name != ".lock")


def test_the_session_of_the_directory_goes_with_its_folder_and_its_socket(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", OVER)
    socket = Path(load_identity(folder).socket)
    socket.touch()
    sessions.make("other", OVER, cwd=sessions.home.root)
    assert run("forget") == Result(0, "removed session 'work'\n", "")
    assert (names(sessions), folder.exists(), socket.exists()) == (["other"], False, False)
    assert run("forget").code == 3


def test_what_is_beside_the_agents_file_goes_and_the_conversation_stays(run: Run, sessions: Sessions) -> None:
    file = sessions.cwd / "talk.jsonl"
    file.write_text("{}\n")
    folder = sessions.make("work", OVER)
    save_identity(folder, replace(load_identity(folder), agent_file=str(file), agent_session_id="talk"))
    with SessionLock.acquire(folder) as lock:
        beside = folders.move_beside(sessions.home, "work", file, lock).folder
    assert beside == file.with_name("talk.loopsup")
    gone = {"name": "work", "agent": "demo", "cwd": str(sessions.cwd), "file": str(file)}
    assert run("forget", "--session", "work", "--json").json == {"version": 1, "forgotten": [gone]}
    assert (names(sessions), beside.exists(), file.read_text()) == ([], False, "{}\n")


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (a_loop(), "end it first: loopsup stop --session work"),
        (a_loop(Paused(PauseReason.USER, None)), "end it first: loopsup stop --session work"),
    ],
)
def test_a_loop_that_can_go_on_stays(run: Run, sessions: Sessions, loop: Loop, said: str) -> None:
    sessions.make("work", loop)
    result = run("forget")
    assert (result.code, result.out) == (4, "")
    assert said in " ".join(result.err.split())
    assert run("forget", "--ended", "--json").json["forgotten"] == []
    assert names(sessions) == ["work"]


@pytest.mark.parametrize("loop", [None, OVER])
def test_a_heartbeat_that_can_go_on_stays(run: Run, sessions: Sessions, loop: Loop | None) -> None:
    """Paused, or left by a supervisor that died; once it has ended by itself, or cannot be read, it keeps nothing."""
    folder = sessions.make("work", loop)
    for due, rest in ((None, Rest.USER), (NOW, None)):
        heartbeats.save(folder, Heartbeat(HOUR, False, NOW.wall + HOUR, due, rest))
        result = run("forget")
        assert (result.code, result.out) == (4, "")
        assert "end it first: loopsup heartbeat stop --session work" in " ".join(result.err.split())
        assert run("forget", "--ended", "--json").json["forgotten"] == []
    assert names(sessions) == ["work"]
    assert run("heartbeat", "stop").code == 0
    assert run("forget").out == "removed session 'work'\n"
    folder = sessions.make("work", loop)
    heartbeats.save(folder, Heartbeat(HOUR, False, NOW.wall - 1, None, Rest.USER))
    (sessions.make("other", loop) / heartbeats.NAME).write_text("no heartbeat")
    assert run("forget", "--ended").out == "removed session 'other'\nremoved session 'work'\n"


def test_an_open_session_stays(run: Run, sessions: Sessions) -> None:
    with sessions.live("work", OVER):
        result = run("forget", "--session", "work")
        assert (result.code, "close it first: loopsup close --session work" in result.err) == (4, True)
        assert run("forget", "--ended").out == "no session is over; see: loopsup ls\n"
    assert names(sessions) == ["work"]


def test_one_that_is_to_come_back_after_a_reboot_stays(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", OVER)
    save_identity(folder, replace(load_identity(folder), enabled=True))
    result = run("forget")
    assert (result.code, "loopsup disable --session work" in result.err) == (4, True)
    assert names(sessions) == ["work"]


def test_opened_by_somebody_else_in_between_it_stays(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sessions.make("work", OVER)
    seen = forget._kept
    held: list[SessionLock] = []

    def faster(entry: object) -> str | None:
        why = seen(entry)  # type: ignore[arg-type]  # the very argument
        if not held:
            held.append(SessionLock.acquire(folder))
        return why

    monkeypatch.setattr(forget, "_kept", faster)
    assert run("forget", "--ended").out == "no session is over; see: loopsup ls\n"
    held[0].release()
    assert names(sessions) == ["work"]


def test_all_that_are_over_and_old_enough(run: Run, sessions: Sessions) -> None:
    sessions.make("failed", OVER)
    sessions.make("done", a_loop(Completed(NOW.wall)))
    sessions.make("never", None)
    sessions.make("paused", a_loop(Paused(PauseReason.USER, None)))
    broken = sessions.make("broken", OVER)
    (broken / "session.toml").write_text("not = = toml")
    damaged = sessions.make("damaged", OVER)
    with (damaged / "journal.jsonl").open("a") as journal:
        journal.write("no record\n")
    assert run("forget", "--ended", "--older-than", "1h", "--json").json["forgotten"] == []
    gone = run("forget", "--ended")
    assert gone == Result(0, "removed session 'done'\nremoved session 'failed'\nremoved session 'never'\n", "")
    assert names(sessions) == ["broken", "damaged", "paused"]
    assert run("forget", "--session", "broken").out == "removed session 'broken'\n"
    assert run("forget", "--session", "damaged").code == 0
    assert names(sessions) == ["paused"]


def test_a_name_that_leads_nowhere_goes(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", OVER)
    moved = sessions.cwd / "elsewhere.loopsup"
    folder.rename(moved)
    folder.symlink_to(moved)
    shutil.rmtree(moved)
    assert run("forget", "--ended").out == "no session is over; see: loopsup ls\n"
    assert run("forget", "--session", "work").code == 0
    assert names(sessions) == []


def test_an_agent_may_not(run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.make("work", OVER)
    monkeypatch.setenv("LOOPSUP_AGENT", "1")
    result = run("forget", "--ended")
    assert (result.code, "an agent may not remove sessions" in result.err) == (4, True)
    assert names(sessions) == ["work"]


@pytest.mark.parametrize(
    "argv",
    [
        ("--ended", "--session", "work"),
        ("--older-than", "1h"),
        ("--ended", "--older-than", "soon"),
        ("--session", "../x"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, sessions: Sessions, argv: tuple[str, ...]) -> None:
    sessions.make("work", OVER)
    assert run("forget", *argv).code == 2
    assert names(sessions) == ["work"]


def test_without_any_state_there_is_nothing_to_remove(run: Run, sessions: Sessions) -> None:
    assert run("forget", "--ended").code == 0
    assert run("forget").code == 3
    assert not sessions.home.root.exists()


def test_a_folder_that_is_only_called_like_a_session_stays(run: Run, sessions: Sessions) -> None:
    sessions.make("other", None)
    mine = sessions.cwd / "mine.loopsup"
    mine.mkdir(mode=0o700)
    (mine / "data").write_text("x")
    (sessions.home.sessions / "work").symlink_to(mine)
    assert run("forget", "--session", "work").code == 0
    assert (names(sessions), os.listdir(mine)) == (["other"], ["data"])


def test_a_second_name_takes_no_socket_of_the_first(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("first", OVER)
    socket = Path(load_identity(folder).socket)
    socket.touch()
    (sessions.home.sessions / "second").symlink_to(folder)
    assert run("forget", "--session", "second").code == 0
    assert (names(sessions), socket.exists()) == (["first"], True)


def test_a_file_where_a_session_should_be_is_not_said_to_be_removed(run: Run, sessions: Sessions) -> None:
    sessions.make("other", None)
    (sessions.home.sessions / "work").write_text("x")
    result = run("forget", "--session", "work")
    assert (result.code, result.out, names(sessions)) == (4, "", ["other", "work"])


def test_whoever_comes_while_it_goes_finds_all_of_it_or_nothing(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sessions.make("work", OVER)
    seen: list[bool] = []
    real = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (seen.append(folder.exists()), real(path)))
    folders.remove(sessions.home, "work")
    assert (seen, os.listdir(sessions.home.sessions)) == ([False], [])


def test_one_that_cannot_be_removed_keeps_no_other(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        sessions.make(name, OVER)
    real = folders.remove

    def remove(home: Home, name: str, lock: SessionLock | None = None) -> None:
        if name == "b":
            raise StorageError("cannot remove b: Permission denied")
        real(home, name, lock)

    monkeypatch.setattr(folders, "remove", remove)
    result = run("forget", "--ended", "--json")
    assert (result.code, [each["name"] for each in result.json["forgotten"]]) == (1, ["a", "c"])
    assert "session 'b' stays: cannot remove b" in " ".join(result.err.split())
    assert names(sessions) == ["b"]
