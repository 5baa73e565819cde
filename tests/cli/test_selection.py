"""Which session a verb means."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.cli import selection
from loopsup.cli.common import note
from loopsup.core.model import Completed, Paused, PauseReason, Phase
from loopsup.errors import NotFoundError, UsageError
from loopsup.store.lock import SessionLock
from tests.cli.support import NOW, Sessions, a_loop

ENDED = Completed(NOW.wall)


def test_none_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no session in"):
        selection.pick(None)
    with pytest.raises(NotFoundError, match="no session 'x'"):
        selection.pick("x")


def test_the_one_of_this_directory(sessions: Sessions, tmp_path: Path) -> None:
    sessions.make("here", a_loop())
    sessions.make("there", a_loop(), cwd=tmp_path)
    assert selection.pick(None).name == "here"


def test_the_nearest_parent_that_has_any(sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.make("up", a_loop(), cwd=tmp_path)
    deep = tmp_path / "work" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert selection.pick(None).name == "up"


def test_several_candidates_are_listed(sessions: Sessions) -> None:
    sessions.make("a", a_loop())
    sessions.make("b", a_loop(Paused(PauseReason.USER)))
    sessions.make("over", a_loop(ENDED))
    with pytest.raises(UsageError, match=r"a, b"):
        selection.pick(None)


def test_a_live_one_goes_before_an_ended_one(sessions: Sessions) -> None:
    sessions.make("ended", a_loop(ENDED))
    folder = sessions.make("idle")
    with SessionLock.acquire(folder):
        assert selection.pick(None).name == "idle"


def test_the_name_goes_before_the_variable_before_the_directory(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        sessions.make(name, a_loop())
    monkeypatch.setenv("LOOPSUP_SESSION", "b")
    assert (selection.pick("c").name, selection.pick(None).name) == ("c", "b")
    monkeypatch.setenv("LOOPSUP_SESSION", "")
    with pytest.raises(UsageError):
        selection.pick(None)


@pytest.mark.parametrize(
    ("phase", "says"),
    [
        (None, "left; the loop goes on, `loopsup stop --session a` ends it"),
        (Paused(PauseReason.USER), "left; the loop is paused, `loopsup resume --session a` goes on"),
        (
            ENDED,
            "left; the loop has ended (completed), `loopsup start --session a …` gives the conversation its next one",
        ),
    ],
)
def test_who_leaves_reads_how_the_loop_stands(sessions: Sessions, phase: Phase | None, says: str) -> None:
    with SessionLock.acquire(sessions.make("a", a_loop(phase))):
        assert selection.left(selection.named("a")) == says


def test_the_truth_of_a_loop_whose_supervisor_is_gone(sessions: Sessions) -> None:
    sessions.make("a", a_loop())
    session = selection.named("a")
    assert session.loop() == a_loop()
    truth = session.truth()
    assert truth is not None
    assert truth.phase == Paused(PauseReason.SUPERVISOR_LOST, next_due_at=NOW.wall + 600_000)


def test_a_session_knows_whether_it_is_alive(sessions: Sessions) -> None:
    session = selection.of_directory(sessions.make("a").parent.parent.parent / "work")[0]
    assert (session.alive(), session.owner_pid(), session.loop()) == (False, None, None)
    with SessionLock.acquire(session.folder):
        assert session.alive()
        assert session.owner_pid() is not None


def test_a_directory_that_is_gone(sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.make("a", a_loop())
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert selection.pick("a").name == "a"
    with pytest.raises(UsageError, match="the directory you are in no longer exists"):
        selection.pick(None)


def test_a_note_is_safe_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("session 'a' works in /w/\x1b]0;x\x07\u202e")
    assert capsys.readouterr().err == "loopsup: session 'a' works in /w/\\x1b]0;x\\x07\\u202e\n"
