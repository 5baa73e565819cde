"""Starting a supervisor: what its answer, its silence and its death become."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import loopsup
from loopsup.cli import launch
from loopsup.errors import AgentUnableError, StorageError, SupervisorGoneError
from loopsup.wire.control import Launch, Request, Response, encode_response

pytestmark = pytest.mark.slow  # real processes

LAUNCH = Launch("s", "new", Request("start", {"objective": "x" * 300_000}))


def script(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A program instead of a supervisor; `say(bytes)` writes to the ready pipe, `tell(name)` leaves a file."""
    path = tmp_path / "fake.py"
    path.write_text(
        "import os, sys, signal\n"
        "fd = int(sys.argv[sys.argv.index('--ready-fd') + 1])\n"
        f"def tell(name, text='x'): open({str(tmp_path)!r} + '/' + name, 'w').write(str(text))\n"
        "def say(line): os.write(fd, line)\n" + body
    )
    return (sys.executable, "-P", str(path))


def test_the_answer_comes_back_and_the_child_lives_on(tmp_path: Path) -> None:
    line = encode_response(Response({"version": 1}, "started"))
    body = (
        "import json, time\nrequest = sys.stdin.buffer.readline()\n"
        "tell('request', json.loads(request)['first']['args']['objective'][:3])\n"
        "tell('sid', os.getsid(0) == os.getpid())\nprint('a log line', flush=True)\n"
        f"say({line[:7]!r}); time.sleep(0.02); say({line[7:]!r}); tell('pid', os.getpid())\nsignal.pause()\n"
    )
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, body))
    pid = starting.child.pid
    try:
        assert starting.answer(60) == Response({"version": 1}, "started")
        assert (tmp_path / "request").read_text() == "xxx"
        assert (tmp_path / "sid").read_text() == "True"
        assert (tmp_path / "supervisor.log").read_text() == "a log line\n"
        assert (tmp_path / "supervisor.log").stat().st_mode & 0o777 == 0o600
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_end_of_a_child_that_serves_nobody_is_waited_for_and_not_forced(tmp_path: Path) -> None:
    line = encode_response(Response({"version": 1}, "started"))
    body = f"say({line!r})\nopen({str(tmp_path / 'go')!r}).read()\ntell('over')\n"
    os.mkfifo(tmp_path / "go")
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, body))
    starting.answer(20, leave=False)
    starting.until_over(0.05)  # somebody keeps it
    os.kill(starting.child.pid, 0)
    assert starting.child.returncode == 0, "the interpreter says nothing of it at its end"
    (tmp_path / "go").write_text("")
    starting.child.returncode = None
    starting.until_over(20)
    assert (tmp_path / "over").exists()


def test_its_error_is_raised_and_the_child_is_gone(tmp_path: Path) -> None:
    line = encode_response(Response(error=AgentUnableError("pi is not installed")))
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, f"say({line!r})\nsignal.pause()\n"))
    with pytest.raises(AgentUnableError, match="pi is not installed"):
        starting.answer(60)
    assert starting.child.returncode is not None


def test_a_child_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    starting = launch.begin(
        LAUNCH, tmp_path, command=script(tmp_path, "print('first\\nlast words', flush=True)\nsys.exit(3)\n")
    )
    with pytest.raises(SupervisorGoneError, match=r"before it was ready \(exit status 3\): last words$"):
        starting.answer(60)


def test_silence_is_bounded_and_ends_the_child(tmp_path: Path) -> None:
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, "signal.pause()\n"))
    with pytest.raises(SupervisorGoneError, match=r"not ready within 0\.1 s and has been ended"):
        starting.answer(0.1)
    assert starting.child.returncode == -signal.SIGTERM


def test_a_child_that_ignores_term_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "END_GRACE_S", 0.1)
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('up')\nwhile True: signal.pause()\n"
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, body))
    starting.until_owned((tmp_path / "up").exists)
    with pytest.raises(SupervisorGoneError):
        starting.answer(0.05)
    assert starting.child.returncode == -signal.SIGKILL


def test_waiting_for_the_owner_ends_with_its_death(tmp_path: Path) -> None:
    starting = launch.begin(LAUNCH, tmp_path, command=script(tmp_path, "sys.exit(0)\n"))
    starting.until_owned(lambda: False, timeout_s=60)
    with pytest.raises(SupervisorGoneError):
        starting.answer(60)


def test_the_log_is_never_opened_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "supervisor.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((SupervisorGoneError, StorageError), match=r"supervisor\.log"):
        launch.begin(LAUNCH, tmp_path, command=("/bin/false",))
    assert not (tmp_path / "elsewhere").exists()


def test_a_command_that_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SupervisorGoneError, match="cannot be started: No such file"):
        launch.begin(LAUNCH, tmp_path, command=("/nonexistent/python",))


def test_our_own_folder_is_added_only_where_p_would_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(loopsup.__file__).resolve().parent.parent)
    monkeypatch.setattr(sys, "path", ["/usr/bin", root])
    assert launch.own_environment({"A": "b"}) == {"A": "b"}
    assert launch.own_environment({"A": "b", "LOOPSUP_MARK": "of the agent that starts it"}) == {"A": "b"}
    monkeypatch.setattr(sys, "path", [root, "/nowhere"])
    assert launch.own_environment({}) == {"PYTHONPATH": root}
    assert launch.own_environment({"PYTHONPATH": "/x"}) == {"PYTHONPATH": f"{root}{os.pathsep}/x"}
