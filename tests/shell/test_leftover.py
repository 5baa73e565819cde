"""What a killed supervisor left behind is ended by the next one, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loopsup.shell import leftover

pytestmark = pytest.mark.slow

MARKED = f"6f1f-of-{os.getpid()}"  # not of a test beside this one
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def end(folder: Path) -> list[str]:
    log: list[str] = []
    asyncio.run(leftover.end(folder, MARKED, log.append))
    return log


def test_the_noted_agent_is_ended_with_its_tree(tmp_path: Path) -> None:
    stays = ["sh", "-c", "sleep 600 & exec sleep 600"]  # a shell that waits would end by itself with its child
    with subprocess.Popen(stays, start_new_session=True) as process:
        leftover.note(tmp_path, process.pid, print)
        while not (children := psutil.Process(process.pid).children()):
            pass
        (log,) = end(tmp_path)
        assert str(process.pid) in log
        assert process.wait(timeout=60) == -signal.SIGTERM
        assert not any(map(leftover.alive, children))


@pytest.mark.parametrize("how", ["stopped", "stubborn"])
def test_one_that_does_not_listen_is_killed(tmp_path: Path, how: str) -> None:
    argv = [sys.executable, "-c", STUBBORN]
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        leftover.note(tmp_path, process.pid, print)
        if how == "stopped":
            process.send_signal(signal.SIGSTOP)
        assert len(end(tmp_path)) == 1
        assert process.wait(timeout=60) == -signal.SIGKILL


def test_an_agent_that_ended_is_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        leftover.note(tmp_path, process.pid, print)
        process.kill()
    assert end(tmp_path) == []


def test_a_number_given_to_a_stranger_is_not_signalled(tmp_path: Path, agent: subprocess.Popen[bytes]) -> None:
    leftover.note(tmp_path, agent.pid, print)
    path = tmp_path / leftover.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "began": 1_000_000.0}))
    assert end(tmp_path) == []
    assert agent.poll() is None


def test_a_process_that_is_no_session_leader_is_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        leftover.note(tmp_path, process.pid, print)
        assert end(tmp_path) == []
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"pid":"x","began":1}', '{"pid":1e400,"began":1}', "\0"])
def test_a_missing_or_damaged_note_is_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / leftover.NAME).write_text(text)
    assert end(tmp_path) == []


def test_an_agent_without_a_process_is_not_noted(tmp_path: Path) -> None:
    leftover.note(tmp_path, None, print)
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_cannot_be_kept_is_told(tmp_path: Path, agent: subprocess.Popen[bytes]) -> None:
    log: list[str] = []
    leftover.note(tmp_path / "nowhere", agent.pid, log.append)
    assert len(log) == 1
    assert "could not be noted" in log[0]


def orphan(tmp_path: Path, mark: str, body: str) -> psutil.Process:
    """A process in a session of its own whose parent is gone."""
    pid = tmp_path / "orphan.pid"
    code = f"import os, signal, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\n{body}\n"
    code += (
        f"open({str(pid)!r} + '.new', 'w').write(str(os.getpid())); os.rename({str(pid)!r} + '.new', {str(pid)!r})\n"
    )
    env = {**os.environ, leftover.MARK: mark}
    subprocess.run([sys.executable, "-I", "-S", "-c", code + "time.sleep(600)"], env=env, check=True)
    while not pid.exists():
        pass
    return psutil.Process(int(pid.read_text()))


@pytest.mark.parametrize("body", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"], ids=["plain", "deaf"])
def test_an_orphan_in_a_session_of_its_own_is_known_by_its_mark(tmp_path: Path, body: str) -> None:
    mine = orphan(tmp_path, MARKED, body)
    other = orphan(tmp_path, "another", body)
    try:
        (log,) = end(tmp_path)
        assert log == f"left behind by the agent and ended now: process {mine.pid}"
        assert not leftover.alive(mine)
        assert other.is_running()
    finally:
        other.kill()


def test_what_is_started_in_the_last_moment_is_ended_too(tmp_path: Path) -> None:
    """On TERM it starts another one, in a session of its own, and ends."""
    heir = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)"  # the kernel shows its mark by then
    body = (
        "def bequeath(*_):\n"
        "    r, w = os.pipe()\n"
        "    os.set_inheritable(w, True)\n"
        f"    argv = [sys.executable, '-I', '-S', '-c', {heir!r}, str(w)]\n"
        "    if not os.fork(): os.setsid(); os.execv(sys.executable, argv)\n"
        "    os.close(w); os.read(r, 1); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, bequeath)"
    )
    orphan(tmp_path, MARKED, body)
    assert len(end(tmp_path)) == 2
    assert leftover.marked(MARKED) == set()


def test_the_one_who_looks_is_never_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process().environ().get("PATH")
    monkeypatch.setattr(leftover, "MARK", "PATH")
    assert own is not None
    assert os.getpid() not in {process.pid for process in leftover.marked(own)}
