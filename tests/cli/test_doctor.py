"""`loopsup doctor`: everything is looked at, whatever is wrong with the rest, and nothing is changed."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import doctor, ls
from loopsup.clock import wall_ms
from loopsup.core.limits import DAY
from loopsup.core.model import Driver, Paused, PauseReason, Stopped
from loopsup.process import executable
from loopsup.store import ticks
from loopsup.store.identity import load_identity, save_identity
from loopsup.store.lock import Owner
from loopsup.store.sessions import peek
from loopsup.wire.control import Response
from tests.cli import plugin
from tests.cli.conftest import Run
from tests.cli.support import HOLD, NOW, Sessions, a_loop, status_of


@pytest.fixture(autouse=True)
def known_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(plugin.install(tmp_path)))
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "one,two")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "loopsup" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def findings(run: Run, about: str, code: int = 0) -> list[tuple[str, str]]:
    """Level and text of what was found of `about`."""
    done = run("doctor", "--json")
    assert (done.code, done.json["ok"]) == (code, code == 0), done
    return [(each["level"], each["text"]) for each in done.json["findings"] if each["about"] == about]


def tree(folder: Path) -> dict[str, Any]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_new_machine_has_no_problem_and_nothing_is_made(run: Run, sessions: Sessions) -> None:
    done = run("doctor")
    lines = [line.split(None, 2) for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert ["ok", "configuration", "none, so the defaults hold"] in lines
    assert ["!", "hook", "none, so nobody is told when a person is needed; see: loopsup hooks list"] in lines
    assert ["ok", "agents", "ready: one, two; see: loopsup agents"] in lines
    assert ["ok", "sessions", "no session, nothing wrong; see: loopsup ls"] in lines
    assert lines[-1][:2] == ["no", "problems,"]
    assert not sessions.home.root.exists()


def test_a_wrong_configuration_stops_no_other_check(run: Run, sessions: Sessions, file: Path) -> None:
    file.write_text("typo = 1\n")
    sessions.make("work", a_loop(Stopped(NOW.wall)))
    ((level, text),) = findings(run, "configuration", 1)
    assert (level, "unknown key 'typo'" in text) == ("problem", True)
    assert findings(run, "sessions", 1) == [("ok", "1 session, nothing wrong; see: loopsup ls")]


def test_what_the_configuration_names_must_be_there(run: Run, file: Path) -> None:
    file.write_text('default_agent = "nobody"\non_attention = "/nowhere"\n')
    assert ("problem", "nobody, which the configuration names: there is no such agent") in findings(run, "agents", 1)
    ((level, text),) = findings(run, "hook", 1)
    assert (level, "which is no file" in text) == ("problem", True)


def test_limits_nobody_can_read(run: Run, file: Path) -> None:
    file.write_text("[continuity]\nmax_resumes = -1\n")
    ((level, text),) = findings(run, "configuration", 1)
    assert (level, "interrupted responses are not recovered" in text) == ("problem", True)


def test_every_line_of_a_session_is_read_and_none_is_touched(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", a_loop(Stopped(NOW.wall)))
    good = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(b"no record\n\0\0\n" + good)
    (folder / "events.jsonl").write_bytes(b"half {\n")
    before = tree(folder)
    assert findings(run, "session work") == [
        ("warning", f"2 damaged lines in {folder / 'journal.jsonl'}, skipped; all the others are read"),
        ("warning", f"a damaged line in {folder / 'events.jsonl'}, skipped; all the others are read"),
    ]
    assert tree(folder) == before


def test_a_session_that_cannot_be_read(run: Run, sessions: Sessions) -> None:
    (sessions.make("work", None) / "session.toml").write_text("not = = toml")
    ((level, text),) = findings(run, "session work", 1)
    assert (level, text.endswith("it can be removed: loopsup forget --session work")) == ("problem", True)


def test_a_supervisor_that_died_and_one_that_does_not_answer(run: Run, sessions: Sessions) -> None:
    sessions.make("lost", a_loop())
    sessions.make("paused", a_loop(Paused(PauseReason.USER, None)))
    text = "its supervisor died, and the loop is paused; it goes on with: loopsup resume --session lost"
    assert findings(run, "session lost") == [("warning", text)]
    assert findings(run, "session paused") == []
    sessions.make("late", a_loop(started_at=NOW.wall - 2 * DAY))
    sessions.make("rests", a_loop(Paused(PauseReason.USER, None), started_at=NOW.wall - 2 * DAY))
    text = "its supervisor died, and the loop's time is used up; see: loopsup status --session late"
    assert findings(run, "session late") == [("warning", text)]
    assert findings(run, "session rests") == []
    with sessions.live("stuck", a_loop(), status=HOLD):
        ((level, text),) = findings(run, "session stuck", 1)
        assert (level, f"(process {os.getpid()}) does not answer" in text) == ("problem", True)
    with sessions.live("well", a_loop(), status=Response(status_of(a_loop()))):
        assert findings(run, "session well") == []


def test_supervisors_are_asked_all_at_once(run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several that hang cost one bounded wait, not one each."""
    names = ("one", "two", "three")
    together = threading.Barrier(len(names))

    def hangs(_: Path) -> None:
        together.wait(30)  # only where the others are being asked, too, it ends

    monkeypatch.setattr(ls, "ask", hangs)
    with contextlib.ExitStack() as held:
        for name in names:
            held.enter_context(sessions.live(name, a_loop()))
        told = run("doctor", "--json").json["findings"]
    silent = [each["about"] for each in told if "does not answer" in each["text"]]
    assert silent == ["session one", "session three", "session two"]


def test_loops_that_wait_for_ticks_which_do_not_come(run: Run, sessions: Sessions) -> None:
    sessions.make("work", a_loop(driver=Driver.TICK))
    ((level, text),) = findings(run, "ticks")
    assert (level, text.startswith("1 loop waiting for `loopsup tick`, which never came;")) == ("warning", True)
    ticks.stamp(sessions.home, wall_ms() - 3 * 3_600_000)
    ((level, text),) = findings(run, "ticks")
    assert (level, "which came 3h" in text) == ("warning", True)
    ticks.stamp(sessions.home, wall_ms())
    assert [level for level, _ in findings(run, "ticks")] == ["ok"]


def test_state_that_others_may_write_is_a_problem(run: Run, sessions: Sessions) -> None:
    sessions.make("work", None)
    sessions.home.root.chmod(0o777)
    ((level, text),) = findings(run, "state", 1)
    assert (level, "other users may write" in text) == ("problem", True)


def test_what_an_agent_wrote_acts_on_no_terminal(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", None)
    odd = replace(load_identity(folder), cwd="/x\x1b[2J")
    save_identity(folder, odd)
    (folder / "events.jsonl").write_bytes(b"\x1b[31m\n")
    assert "\x1b" not in run("doctor").out


def test_a_session_that_cannot_be_looked_at_hides_no_other(run: Run, sessions: Sessions) -> None:
    os.mkfifo(sessions.make("a", a_loop(Stopped(NOW.wall))) / "events.jsonl")
    sessions.make("lost", a_loop(driver=Driver.TICK))
    ((level, text),) = findings(run, "session a", 1)
    assert (level, "is not a regular file" in text) == ("problem", True)
    assert len(findings(run, "ticks", 1)) == 1


def test_a_session_that_closes_just_now_is_no_problem(run: Run, sessions: Sessions) -> None:
    sessions.make("work", a_loop(Stopped(NOW.wall)))
    seen = replace(peek(sessions.home, "work"), owner=Owner(1))
    assert list(doctor._session(seen, None)) == []


def test_what_keeps_several_checks_from_looking_is_told_once(run: Run, file: Path) -> None:
    file.write_text("typo = 1\n")
    found = [each for each in run("doctor", "--json").json["findings"] if "unknown key 'typo'" in each["text"]]
    assert [(each["level"], each["about"]) for each in found] == [("problem", "configuration"), ("warning", "rules")]


def test_a_state_home_that_cannot_be_made_is_a_problem(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "file" / "state"))
    ((level, text),) = findings(run, "state", 1)
    assert (level, "set LOOPSUP_HOME to another place" in text) == ("problem", True)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "open"))
    ((level, text),) = findings(run, "state", 1)
    assert (level, "other users may write" in text) == ("problem", True)


def test_a_journal_of_which_nothing_can_be_read(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", a_loop(Paused(PauseReason.USER, None)))
    (folder / "journal.jsonl").write_text("garbage\n")
    found = findings(run, "session work", 1)
    assert [level for level, _ in found] == ["problem", "warning"]
    assert "what its loop was is lost" in found[0][1]
    refused = run("forget")
    assert (refused.code, "name it to remove it all the same" in " ".join(refused.err.split())) == (4, True)
    assert folder.exists()


def test_what_a_supervisor_names_as_its_problem(run: Run, sessions: Sessions) -> None:
    status = status_of(a_loop())
    status["session"]["problem"] = "the disk is full"
    with sessions.live("work", a_loop(), status=Response(status)):
        assert findings(run, "session work", 1) == [("problem", "the disk is full")]


def test_in_a_directory_that_is_gone_the_agents_are_not_to_blame(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert [level for level, _ in findings(run, "agents", 1)] == ["ok"]
    assert executable.missing("no-such-command", {"PATH": "/nowhere"}, "") is not None
