"""The hook runner against real hooks (L-127 … L-137, D-15, cases 113–115)."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from loopsup.clock import SystemClock
from loopsup.core.model import Moment
from loopsup.shell.hook import OUTPUT_LIMIT, HookResult, Limits, run_hook

EVENT = b'{"version":1,"status":"completed"}'
BIG_EVENT = json.dumps({"version": 1, "objective": "x" * (1024 * 1024)}).encode()
ENV = {"PATH": os.environ["PATH"]}
SHORT = Limits(timeout_s=6.0, term_grace_s=0.3, kill_grace_s=60.0, drain_grace_s=0.2)  # a busy machine gets the six
POLITE = Limits(timeout_s=0.5, term_grace_s=60.0, kill_grace_s=60.0, drain_grace_s=0.2)
PATIENT = Limits(timeout_s=90.0, term_grace_s=60.0, kill_grace_s=60.0, drain_grace_s=0.2)


class Stopwatch:
    """A clock that advances 7 ms each time it is read."""

    def __init__(self) -> None:
        self._ms = 0

    def now(self) -> Moment:
        self._ms += 7
        return Moment(self._ms, self._ms)


@pytest.fixture
def hook(tmp_path: Path):
    def make(body: str, name: str = "hook", mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(mode)
        return str(path)

    return make


def run(path: str, event: bytes = EVENT, limits: Limits = PATIENT) -> HookResult:
    return asyncio.run(run_hook(path, event, env=ENV, clock=Stopwatch(), limits=limits))


def until(check, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_event_arrives_whole_and_standard_input_is_closed(hook, tmp_path: Path) -> None:
    path = hook(f'cat > {tmp_path}/got; echo "$#" > {tmp_path}/count')
    assert run(path, BIG_EVENT) == HookResult(path, exit=0, duration_ms=7)
    assert (tmp_path / "got").read_bytes() == BIG_EVENT
    assert (tmp_path / "count").read_text() == "0\n"


def test_the_environment_is_the_given_one_and_the_directory_is_neutral(hook, tmp_path: Path) -> None:
    path = hook(f"pwd > {tmp_path}/cwd; env > {tmp_path}/env")
    assert run(path).ok
    assert (tmp_path / "cwd").read_text() == "/\n"
    assert "HOME=" not in (tmp_path / "env").read_text()


def test_a_failing_hook_is_a_result(hook) -> None:
    path = hook("echo out; echo err >&2; exit 3")
    result = run(path)
    assert result == HookResult(path, exit=3, duration_ms=7, output="out\nerr\n")
    assert result.data() == {"path": path, "exit": 3, "durationMs": 7, "stderr": "out\nerr\n"}


def test_a_hook_that_dies_of_a_signal(hook) -> None:
    path = hook("kill -SEGV $$")
    assert run(path).data() == {"path": path, "signal": "SIGSEGV", "durationMs": 7}


@pytest.mark.slow
def test_a_megabyte_for_a_hook_that_never_reads(hook) -> None:
    path = hook("exec <&-; exit 0")
    assert run(path, BIG_EVENT) == HookResult(path, exit=0, duration_ms=7)
    path = hook("sleep 60")
    result = run(path, BIG_EVENT, POLITE)
    assert result == HookResult(path, signal="SIGTERM", timeout=True, duration_ms=7)


@pytest.mark.slow
def test_output_without_end_is_drained_and_bounded(hook) -> None:
    path = hook("head -c 100000000 /dev/zero | tr '\\0' y; echo the end")
    result = run(path)
    assert result.exit == 0
    assert len(result.output) == OUTPUT_LIMIT
    assert result.output.endswith("yythe end\n")


@pytest.mark.slow
def test_a_hang_is_ended_with_its_children_and_holds_nobody_up(hook, tmp_path: Path) -> None:
    path = hook(f"trap '' TERM; (trap '' TERM; sleep 3600) & echo $! > {tmp_path}/child; sleep 3600; sleep 3600")

    async def scene() -> tuple[HookResult, int]:
        task = asyncio.create_task(run_hook(path, EVENT, env=ENV, clock=SystemClock(), limits=SHORT))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return task.result(), ticks

    result, ticks = asyncio.run(scene())
    assert (result.exit, result.signal, result.timeout) == (None, "SIGKILL", True)
    assert result.duration_ms >= 1000 * (SHORT.timeout_s + SHORT.term_grace_s)
    assert ticks > 20  # the loop ran on all the while
    child = int((tmp_path / "child").read_text())
    assert until(lambda: not alive(child))


@pytest.mark.slow
def test_a_child_that_ignores_the_term_of_its_parent_goes_too(hook, tmp_path: Path) -> None:
    path = hook(f"sh -c \"trap '' TERM; echo \\$\\$ > {tmp_path}/child; while :; do sleep 1; done\" & wait")
    assert run(path, limits=SHORT).timeout
    child = int((tmp_path / "child").read_text())
    assert until(lambda: not alive(child))


@pytest.mark.slow
def test_a_daemon_left_behind_delays_nothing_and_is_left_alone(hook, tmp_path: Path) -> None:
    path = hook(f"sleep 3600 & echo $! > {tmp_path}/child; echo done")
    result = run(path)
    child = int((tmp_path / "child").read_text())
    try:
        assert result == HookResult(path, exit=0, duration_ms=7, output="done\n")
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_cancelling_ends_it(hook, tmp_path: Path) -> None:
    path = hook(f"echo $$ > {tmp_path}/pid; sleep 3600")

    async def scene() -> None:
        task = asyncio.create_task(run_hook(path, EVENT, env=ENV, clock=Stopwatch(), limits=PATIENT))
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_symbolic_link_to_a_file_is_a_hook(hook, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(hook("exit 0"))
    assert run(str(tmp_path / "link")).ok


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("hook", "'hook' is not an absolute path; name the hook like /home/me/bin/hook"),
        ("", "'' is not an absolute path; name the hook like /home/me/bin/hook"),
        ("~/hook", "'~/hook' is not an absolute path; name the hook like /home/me/bin/hook"),
        ("/a\0b", "'/a\\x00b' is not an absolute path; name the hook like /home/me/bin/hook"),
        ("/", "'/' is not a file; a hook is one executable file"),
        ("/dev/null", "'/dev/null' is not a file; a hook is one executable file"),
        (
            "/nowhere/hook",
            "'/nowhere/hook': No such file or directory; a hook is one executable file, without arguments",
        ),
    ],
)
def test_what_is_no_hook_is_said_and_not_run(path: str, reason: str) -> None:
    assert run(path) == HookResult(path, error=reason)


def test_a_command_line_is_no_hook_and_no_shell_runs(hook, tmp_path: Path) -> None:
    for path in (f"/bin/sh -c touch${{IFS}}{tmp_path}/probe", f"/bin/touch {tmp_path}/probe", "/bin/sh -c x"):
        assert "No such file" in str(run(path).error)
    assert not (tmp_path / "probe").exists()


def test_a_file_that_cannot_be_executed(hook, tmp_path: Path) -> None:
    path = hook("exit 0", mode=0o644)
    assert run(path).error == f"{path!r} is not executable; run chmod +x on it"
    (tmp_path / "text").write_text(f"touch {tmp_path}/probe\n")  # no interpreter line: a shell would run it
    (tmp_path / "text").chmod(0o755)
    assert run(str(tmp_path / "text")).error == f"'{tmp_path}/text' cannot be executed: Exec format error"
    assert not (tmp_path / "probe").exists()


def test_the_words_for_people() -> None:
    assert [
        HookResult("/h", exit=1, duration_ms=5).describe(),
        HookResult("/h", signal="SIGKILL", timeout=True, duration_ms=12000).describe(),
        HookResult("/h", error="'/h' is not a file").describe(),
    ] == [
        "the attention hook '/h' ended with exit status 1 after 5 ms",
        "the attention hook '/h' was ended for taking too long (signal SIGKILL after 12000 ms)",
        "the attention hook did not run: '/h' is not a file",
    ]


def test_no_descriptor_is_left_open(hook) -> None:
    path = hook("exit 0")
    run(path)
    gc.collect()  # what an earlier test left open must not be closed within this one
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        run(path, BIG_EVENT)
        run("/bin")
    assert len(os.listdir("/dev/fd")) == before
