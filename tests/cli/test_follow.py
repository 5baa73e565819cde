"""Following: nothing missed, nothing twice, and every way a stream can end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import follow, selection
from loopsup.cli.follow import Ending, Seen
from loopsup.clock import wall_ms
from loopsup.errors import SupervisorGoneError
from loopsup.store.lock import SessionLock
from tests.cli.reading import T0, Made, event, json_lines


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops are looked at on the day they were made, not after their deadline."""
    step = tmp_path / "step"
    step.write_text(str(T0 - wall_ms()))
    monkeypatch.setenv("LOOPSUP_CLOCK_STEP", str(step))
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LOOPSUP_SESSION", raising=False)


class Notebook:
    """A sink that writes down what it is given."""

    def __init__(self) -> None:
        self.pages: list[object] = []

    def event(self, event: Mapping[str, Any]) -> None:
        self.pages.append(event["seq"])

    def status(self, status: Mapping[str, Any]) -> None:
        loop = status["loop"]
        self.pages.append(None if loop is None else loop["state"])

    def maximum(self, iterations: int) -> None:
        self.pages.append(f"of {iterations}")

    def say(self, text: str) -> None:
        self.pages.append(text)

    def finish(self) -> None:
        self.pages.append("end")


def status(state: str | None) -> dict[str, Any]:
    loop = {"state": state, "maxIterations": 50, "startedAt": "2026-10-10T00:00:01.000Z"}
    return {"status": {"loop": None if state is None else loop}}


def at(second: int, seq: int, kind: str = "abort") -> dict[str, Any]:
    return event(seq, kind, {"reason": "user"}) | {"at": f"2026-10-10T00:00:0{second}.000Z"}


def file(*events: Mapping[str, Any]) -> follow.Past:
    def past(after: int) -> Iterable[Mapping[str, Any]]:
        return [one for one in events if one["seq"] > after]

    return past


def consumed(
    *lines: dict[str, Any], past: follow.Past, until_end: bool = False, since: int | None = None
) -> tuple[Seen, list[object]]:
    notes = Notebook()
    seen = follow.consume(lines, notes, past, until_end=until_end, since=since)
    return seen, notes.pages


def test_a_start_shows_its_loop_from_the_beginning_and_nothing_twice() -> None:
    stored = file(at(0, 1), at(1, 2), at(2, 3), at(3, 4), at(3, 5))
    lines = (status("running"), {"event": at(2, 3)}, {"event": at(3, 4)}, status("completed"), {"event": at(3, 9)})
    seen, pages = consumed(*lines, past=stored, until_end=True)
    assert pages == ["of 50", 2, 3, 4, 5, "running", "completed"]
    assert (seen.ending, seen.last_seq, seen.status) == (Ending.DONE, 5, status("completed")["status"])


def test_a_loop_that_ended_before_we_came_is_shown_all_the_same() -> None:
    seen, pages = consumed(status("completed"), past=file(at(0, 1), at(1, 2)), until_end=True)
    assert (seen.ending, pages) == (Ending.DONE, ["of 50", 2, "completed"])


def test_a_session_without_a_loop_is_not_waited_for() -> None:
    seen, pages = consumed(status(None), past=file(at(0, 1)), until_end=True)
    assert (seen.ending, pages) == (Ending.DONE, [None])


def test_a_watcher_sees_only_what_comes_and_stays_after_the_end() -> None:
    lines = (status("running"), {"event": at(2, 7)}, status("completed"), {"event": at(3, 9)}, {"closed": "idle"})
    seen, pages = consumed(*lines, past=file(at(0, 1), at(2, 7), at(3, 9)))
    assert pages == ["running", 7, 9, "completed"]
    assert (seen.ending, seen.reason) == (Ending.CLOSED, "idle")


def test_since_shows_the_file_first_whatever_the_loop() -> None:
    seen, pages = consumed(status("waiting"), {"event": at(1, 3)}, past=file(at(0, 1), at(0, 2), at(1, 3)), since=1)
    assert pages == [2, 3, "waiting"]
    assert (seen.ending, seen.last_seq) == (Ending.LOST, 3)


def test_live_only_events_are_always_shown() -> None:
    delta = {"event": event(0, "assistant.message_delta", {"text": "x"})}
    _, pages = consumed(status("running"), {"event": at(1, 3)}, delta, delta, past=file())
    assert pages == ["running", 3, 0, 0]


def test_what_was_stored_after_the_last_line_is_shown() -> None:
    seen, pages = consumed(status("running"), {"event": at(1, 3)}, past=file(at(1, 3), at(1, 4)))
    assert pages == ["running", 3, 4]
    assert seen.ending is Ending.LOST


# ---- with a session on disk -----------------------------------------------------------------------


def made(tmp_path: Path) -> Made:
    return (
        Made("proj", tmp_path)
        .start()
        .event("user.message", {"origin": "loop", "text": "", "messageId": "m"}, iteration=1)
    )


def test_run_until_the_end_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = made(tmp_path)
    before = session.status()
    session.decide("complete", 1000)
    lines = ({"status": before}, {"event": event(2, "loop.notice", {"message": "é"})}, {"status": session.status()})
    with session.owned(*lines):
        status = follow.run(session.identity, json_mode=True, until_end=True)
    out = capsys.readouterr()
    assert status == session.status()
    assert [line["type"] for line in json_lines(out.out)] == ["user.message"]
    assert out.out.isascii()


def test_a_closed_session_is_told_and_the_files_have_the_last_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = made(tmp_path)
    with session.owned({"closed": "SIGTERM"}):
        seen = follow.run(session.identity, json_mode=False, until_end=True)
    assert seen is not None
    assert (seen["loop"]["state"], seen["loop"]["pauseReason"]) == ("paused", "supervisor_lost")
    shown = capsys.readouterr().out
    assert "── iteration 1 of 50 " in shown
    assert "the session 'proj' was closed (SIGTERM)\npaused: " in shown


def test_a_supervisor_that_dies_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = made(tmp_path)
    with session.owned({"event": event(2, "assistant.message_delta", {"text": "half a li"})}):
        status = follow.run(session.identity, json_mode=False, until_end=True)
    assert status is not None
    assert status["session"]["supervisor"]["responding"] is False
    assert (
        "  half a li\nthe supervisor of session 'proj' is gone without closing it; "
        "`loopsup resume --session proj` goes on\n"
    ) in capsys.readouterr().out


def test_a_supervisor_that_was_gone_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = made(tmp_path)
    status = follow.run(session.identity, json_mode=True, until_end=True)
    out = capsys.readouterr()
    assert status is not None
    assert status["loop"]["pauseReason"] == "supervisor_lost"
    assert [line["type"] for line in json_lines(out.out)] == ["user.message"]
    assert out.err == "loopsup: the supervisor of session 'proj' is gone\n"


def test_a_supervisor_that_lives_and_has_no_socket_is_an_error(tmp_path: Path) -> None:
    session = made(tmp_path)
    with SessionLock.acquire(session.folder), pytest.raises(SupervisorGoneError, match="does not answer"):
        follow.run(session.identity, json_mode=True, until_end=True)


def test_a_session_that_is_gone(tmp_path: Path) -> None:
    session = Made("proj", tmp_path)
    (session.folder / "session.toml").unlink()
    session.folder.rmdir()
    assert selection.lookup("proj") is None
    assert follow.run(session.identity, json_mode=True, until_end=True) is None
