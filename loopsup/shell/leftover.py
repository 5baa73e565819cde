"""What an agent leaves behind: it must have ended before the next agent of the session begins.

Most agents end by themselves when their input closes. One that cannot (it hangs, or was stopped) would wake up
later and write into a conversation that has another agent by then. So the agent's process is noted in the
session's folder, and the next supervisor ends what is left of it. A process is recognised by its number, the
instant it began and being the leader of its session: a number that was given to a stranger is never signalled.

A tool that went into a session of its own and lost its parent is in nobody's tree. It is known by the mark that
every process of the session's agents has in its environment, and by nothing else; where the system does not
show the environment of other processes, such a tool is not found. A process that removes the mark is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from loopsup.errors import StorageError
from loopsup.process import KILL_GRACE_S, POLL_S, TERM_GRACE_S
from loopsup.store.files import read_private, write_atomic

NAME = "agent.json"
MARK = "LOOPSUP_MARK"  # in the environment of all that an agent of a session starts; its value is the session's id
MOST_SWEEPS = 5  # what is ended may start something in its last moment; whoever does so for ever is not followed
MAX_BYTES = 4096  # two numbers
SAME_BEGIN_S = 2.0  # the system counts it from the boot, whose instant moves when the clock is set


def note(folder: Path, pid: int | None, log: Callable[[str], None]) -> None:
    """Keep which process the agent of this session is."""
    try:
        if pid is not None:
            began = psutil.Process(pid).create_time()
            write_atomic(folder / NAME, json.dumps({"v": 1, "pid": pid, "began": began}).encode("ascii") + b"\n")
    except (StorageError, psutil.Error) as error:
        log(f"which process the agent is could not be noted: {error}")


async def end(folder: Path, mark: str, log: Callable[[str], None]) -> None:
    """End the agent that a dead supervisor left behind, with all that has its mark: TERM, then KILL."""
    found = _left(folder)
    if found is not None:
        log(f"an agent was left behind by a supervisor that is gone (process {found.pid}); it is ended")
        if not await end_all({found, *descendants(found.pid)}):
            log(f"process {found.pid} could not be ended")
    await sweep(mark, log)


async def sweep(mark: str, log: Callable[[str], None]) -> None:
    """End whatever has this mark, wherever it went. Only while no agent of the session is meant to live."""
    for _ in range(MOST_SWEEPS):
        left = marked(mark)
        if not left:
            return
        log(f"left behind by the agent and ended now: {_names(left)}")
        await end_all(left)
    if left := marked(mark):
        log(f"left behind by the agent and could not be ended: {_names(left)}")


def marked(mark: str) -> set[psutil.Process]:
    """The living processes with this mark in their environment, ourselves excepted."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):  # a stranger's, or over already
            process = psutil.Process(pid)
            if pid != os.getpid() and process.environ().get(MARK) == mark and alive(process):
                found.add(process)
    return found


def _names(processes: set[psutil.Process]) -> str:
    return ", ".join(f"process {process.pid}" for process in sorted(processes, key=lambda it: it.pid))


def descendants(pid: int | None) -> set[psutil.Process]:
    """The tree below a process, as it is now; empty where there is no such process."""
    with contextlib.suppress(psutil.Error):
        if pid is not None:
            return set(psutil.Process(pid).children(recursive=True))
    return set()


async def end_all(family: set[psutil.Process]) -> bool:
    """TERM, then KILL; False if something is still there. They are not our children: no event tells their end."""
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        for member in family:
            with contextlib.suppress(psutil.Error):  # psutil refuses a number that was given to another process
                member.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while any(map(alive, family)):  # noqa: ASYNC110 (no event tells it)
                    await asyncio.sleep(POLL_S)
                return True
    return False


def _left(folder: Path) -> psutil.Process | None:
    try:
        noted = json.loads(read_private(folder / NAME, MAX_BYTES))
        pid, began = int(noted["pid"]), float(noted["began"])
        process = psutil.Process(pid)
        same = abs(process.create_time() - began) < SAME_BEGIN_S and os.getsid(pid) == pid
    except (OSError, StorageError, psutil.Error, ValueError, TypeError, KeyError, OverflowError):
        return None
    return process if same and alive(process) else None


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
