"""`loopsup ls`: every session, also a broken one, and quickly."""

from __future__ import annotations

import time
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import app, ls, render
from loopsup.core import events as ev
from loopsup.core.model import Moment
from loopsup.store import sessions
from loopsup.store.home import find_home
from loopsup.store.lock import SessionLock
from tests.cli.reading import MINUTE, T0, Made, json_lines


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("COLUMNS", "200")


def listed(asked: ls.Ask = ls.ask, now: int = 0) -> list[ls.Status]:
    return ls.gather(sessions.list_sessions(find_home()), Moment(T0 + now, now), asked)


def page(found: list[ls.Status], now: int = 0, width: int = 100) -> list[str]:
    return ls.text_lines(found, T0 + now, width, UTC)


def test_no_session_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["ls"]) == 0
    assert capsys.readouterr().out == "no session on this machine; `loopsup start` makes one\n"
    assert app.run(["ls", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"version": 1, "sessions": []}]


def test_every_kind_of_row() -> None:
    Made("ended", Path("/home/me/a")).start().decide("complete", MINUTE)
    Made("empty", Path("/home/me"))
    Made("lost", Path("/srv/b")).start().decide("continue", MINUTE)
    waiting = Made("waiting", Path("/srv/c")).start().decide("continue", MINUTE)
    silent = Made("silent", Path("/srv/d")).start()
    broken = Made("x-broken", Path("/srv/e"))
    (broken.folder / "session.toml").write_text("name = 3\n")
    with waiting.owned(), SessionLock.acquire(silent.folder):
        found = listed(now=2 * MINUTE)
    assert page(found, 2 * MINUTE, 300) == [
        "NAME      AGENT  STATE                    ITERATION  NEXT WAKE         DIRECTORY",
        "empty     demo   no loop                  -          -                 ~",
        "ended     demo   completed                1/50       -                 ~/a",
        "lost      demo   paused: supervisor lost  1/50       -                 /srv/b",
        "silent    demo   running (no answer)      1/50       -                 /srv/d",
        "waiting   demo   waiting                  1/50       00:11:00 (in 9m)  /srv/c",
        "x-broken  -      broken                   -          -",
        f"x-broken: {found[-1]['session']['problem']}",
    ]
    problems = {status["session"]["name"]: status["session"]["problem"] for status in found}
    assert problems["silent"] == "the supervisor does not answer; this is the last state in its journal"
    assert problems["waiting"] is None
    assert "session.toml is damaged" in found[-1]["session"]["problem"]


def test_the_json_is_a_list_of_status_objects(capsys: pytest.CaptureFixture[str]) -> None:
    made = Made("a", Path("/srv/a")).start()
    with made.owned():
        assert app.run(["ls", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"version": 1, "sessions": [made.status()]}]


def test_a_late_wake_is_loud() -> None:
    made = Made("a", Path("/srv/a")).start().decide("continue", MINUTE)
    status = made.status()
    late: dict[str, Any] = {**status, "loop": {**status["loop"], "late": True}}
    assert page([late])[1] == "a     demo   waiting  1/50       LATE, 00:11:00  /srv/a"


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_rows_fit_the_terminal(width: int) -> None:
    Made("a" * 60, Path("/srv/" + "long/" * 40)).start()
    shown = page(listed(), width=width)
    assert max(map(render.columns, shown)) <= width
    assert [word in shown[0] for word in ("NAME", "STATE", "NEXT")] == [True] * 3


def test_the_state_and_the_next_wake_stay_at_forty_columns() -> None:
    made = Made("project-one", Path("/srv/a/long/directory")).start().decide("continue", MINUTE)
    with made.owned():
        found = listed(now=2 * MINUTE)
    assert page(found, 2 * MINUTE, 45) == [
        "NAME         STATE    NEXT WAKE",
        "project-one  waiting  00:11:00 (in 9m)",
    ]
    assert page(found, 2 * MINUTE, 60)[0].split() == ["NAME", "AGENT", "STATE", "ITERATION", "NEXT", "WAKE"]


def test_hostile_directories_and_problems_are_harmless() -> None:
    status = Made("a", Path("/srv/a")).status()
    status["session"] |= {"cwd": "/x\x1b[2J\u202e", "problem": "y\x1b[2J\nz"}
    shown = page([status])
    assert [render.safe(line) for line in shown] == shown


def test_damage_in_a_journal_is_told_beside_its_row() -> None:
    made = Made("a", Path("/srv/a")).start().tell(1000, ev.Stop())
    with (made.folder / "journal.jsonl").open("ab") as journal:
        journal.write(b"{oops\n")
    found = listed()
    assert found[0]["loop"]["iterationCount"] == 1
    assert page(found)[2].startswith("a: 1 line was skipped at the end of the journal")


@pytest.mark.slow
def test_fifty_sessions_of_which_none_answers_stay_quick() -> None:
    """Each holds its lock and lets its clients wait: asked together, not one after the other."""

    def deaf(_: Path) -> None:
        time.sleep(ls.PATIENCE_S)

    made = [Made(f"s{number}", Path(f"/srv/{number}")).start() for number in range(50)]
    locks = [SessionLock.acquire(one.folder) for one in made]
    begin = time.monotonic()
    found = listed(deaf)
    took = time.monotonic() - begin
    for lock in locks:
        lock.release()
    assert [status["session"]["supervisor"]["responding"] for status in found] == [False] * 50
    assert took < 50 * ls.PATIENCE_S / 2  # one after the other would take all of it


@pytest.mark.slow
def test_a_deaf_supervisor_costs_no_more_than_our_patience(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        assert ls.ask(path) is None  # it says nothing, ever: who waited longer would be waiting still
