"""`loopsup logs`: the file readable or as it is, damage told, and what comes after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.cli import app, logs
from loopsup.store.lock import SessionLock
from tests.cli.reading import Made, event, json_lines


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LOOPSUP_SESSION", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    made = Made("proj", tmp_path).start()
    made.event("user.message", {"messageId": "m", "origin": "loop", "text": "…"}, iteration=1)
    return made.event("assistant.message", {"turnId": "t", "text": "a\x1b[2J\nb", "toolRequests": []}, iteration=1)


TEXT = "── iteration 1 · 00:00:00 ──\n  a\\x1b[2J\n  b\n"


def damage(session: Made) -> None:
    path = session.folder / "events.jsonl"
    path.write_bytes(b"{oops\n" + path.read_bytes() + b'[1]\n{"v":1,"seq":"x"}\n\xff\xfe\n{"v":1,"seq":9,"at"')


def test_the_readable_log(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["logs"]) == 0
    assert capsys.readouterr() == (TEXT, "")


def test_the_log_as_json(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["logs", "--json"]) == 0
    out = capsys.readouterr().out
    assert out == (session.folder / "events.jsonl").read_text()


def test_damaged_lines_are_counted_and_told(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    damage(session)
    assert app.run(["logs"]) == 0
    said = f"loopsup: warning: 5 damaged lines were skipped in {session.folder / 'events.jsonl'}\n"
    assert capsys.readouterr() == (TEXT, said)


def test_a_session_without_events(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    (session.folder / "events.jsonl").unlink()
    assert app.run(["logs"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_unreadable_log_is_one_sentence(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    path = session.folder / "events.jsonl"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert app.run(["logs"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_no_session_here(session: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path("/")
    monkeypatch.chdir(elsewhere)
    assert app.run(["logs"]) == 3


def test_following_goes_on_with_what_comes_until_the_session_closes(
    session: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ({"event": event(2, "abort", {"reason": "user"})}, {"event": event(3, "abort", {"reason": "user"})})
    with session.owned(*live, {"closed": "idle"}) as supervisor:
        assert app.run(["logs", "-f"]) == 0
    assert supervisor.verbs == ["ping", "follow"]
    out = capsys.readouterr().out
    assert out.startswith(TEXT)
    assert out.count("aborted by you\n") == 1  # the other one has the number of a stored event
    assert "the session 'proj' was closed (idle)\n" in out


def test_following_without_a_supervisor_says_that_nobody_writes(
    session: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["logs", "-f"]) == 0
    note = "loopsup: nobody writes here any more: session 'proj' has no supervisor\n"
    assert capsys.readouterr() == (TEXT, note)


def test_following_a_supervisor_that_dies(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with session.owned():
        assert app.run(["logs", "-f", "--json"]) == 5
    out = capsys.readouterr()
    assert [line["seq"] for line in json_lines(out.out)] == [1, 2]
    assert "is gone without closing it" in out.err


def test_following_a_supervisor_that_does_not_answer(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with SessionLock.acquire(session.folder):
        assert app.run(["logs", "-f"]) == 5
    out = capsys.readouterr()
    assert out.out == TEXT
    assert "does not answer" in out.err


@pytest.mark.parametrize(
    "line",
    [
        b"",
        None,
        b"{",
        b"[]",
        b"1",
        b'{"seq":1,"at":"x","type":"y"}',
        b'{"seq":1,"at":1,"type":"y","data":{}}',
        b"[" * 99_999,
    ],
)
def test_lines_that_are_no_events(line: bytes | None) -> None:
    assert logs.decoded(line) is None
