"""`loopsup attach`: only looks, says how to leave, and needs a supervisor."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopsup.cli import app
from loopsup.core import events as ev
from loopsup.store.lock import SessionLock
from tests.cli.reading import Made, event, json_lines

HINT = "loopsup: watching session 'proj' (demo); Ctrl-C leaves, and the loop goes on\n"
LOGS = "loopsup: `loopsup logs --session proj` shows what came before\n"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LOOPSUP_SESSION", raising=False)
    monkeypatch.chdir(tmp_path)
    return Made("proj", tmp_path).start().event("abort", {"reason": "user"})


def test_the_conversation_from_now_on(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    live = (
        {"event": event(2, "user.message", {"messageId": "m", "origin": "loop", "text": ""}, iteration=2)},
        {"event": event(0, "assistant.message_delta", {"text": "hi"})},
        {"event": event(3, "assistant.message", {"turnId": "t", "text": "hi", "toolRequests": []})},
    )
    journal = (session.folder / "journal.jsonl").read_bytes()
    with session.owned(*live, {"closed": "idle"}):
        assert app.run(["attach"]) == 0
    out, err = capsys.readouterr()
    assert err == HINT + LOGS
    first, second, *rest = out.split("\n")
    assert first.startswith("── iteration 2 of 50 · ")
    assert (second, rest[0]) == ("  hi", "the session 'proj' was closed (idle)")
    assert (session.folder / "journal.jsonl").read_bytes() == journal


def test_what_is_said_where_no_loop_is_active(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    session.tell(0, ev.Pause()).decide("continue", 1000)
    with session.owned({"closed": "idle"}):
        assert app.run(["attach"]) == 0
    assert "its loop is paused (by you); Ctrl-C leaves\n" in capsys.readouterr().err
    session.tell(2000, ev.Stop())
    with session.owned({"closed": "idle"}):
        assert app.run(["attach"]) == 0
    assert "its loop has ended (stopped); Ctrl-C leaves\n" in capsys.readouterr().err


def test_what_the_last_iteration_came_to(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    session.decide("continue", 1000)
    with session.owned({"closed": "idle"}):
        assert app.run(["attach"]) == 0
    watching, last, logs = capsys.readouterr().err.splitlines(keepends=True)
    assert (watching, logs) == (HINT, LOGS)
    assert re.fullmatch(r"loopsup: iteration 1 decided at .* to continue: all green\n", last)


def test_as_json_only_events_are_on_standard_output(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    one = event(2, "abort", {"reason": "user"})
    with session.owned({"event": one}, {"status": session.status()}, {"closed": "idle"}):
        assert app.run(["attach", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [one]


def test_without_a_supervisor(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["attach"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "loopsup: session 'proj' has no supervisor, so there is nothing to watch; `loopsup history` shows what "
        "happened, `loopsup resume --session proj` brings a paused loop back\n"
    )


def test_a_supervisor_that_does_not_answer(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with SessionLock.acquire(session.folder):
        assert app.run(["attach", "--json"]) == 5
    (error,) = json_lines(capsys.readouterr().out)
    assert error["error"]["kind"] == "supervisor_gone"


def test_a_supervisor_that_dies_while_we_watch(session: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with session.owned():
        assert app.run(["attach"]) == 5
    assert "is gone without closing it" in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_leaves_and_says_that_the_loop_goes_on(session: Made, tmp_path: Path) -> None:
    """On a real terminal, in mid-sentence: the half line is ended, the exit code is 130."""
    master, slave = pty.openpty()
    delta = {"event": event(0, "assistant.message_delta", {"text": "half a sen"})}
    with session.owned(delta, stay=True):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(
            [sys.executable, "-m", "loopsup", "attach"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=tmp_path,
        )
        os.close(slave)
        shown = b""
        while b"half a sen" not in shown:
            assert select.select([master], [], [], 60)[0], shown
            shown += os.read(master, 4096)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    with contextlib.suppress(OSError):  # nobody is left at the other end, and everything it wrote has been read
        while data := os.read(master, 4096):
            shown += data
    os.close(master)
    assert (
        shown.decode()
        .replace("\r\n", "\n")
        .endswith("  half a sen\nloopsup: left; the loop goes on, `loopsup stop --session proj` ends it\n")
    )
