"""The attention hook: one file, executed directly, off everybody's critical path.

Rules. No shell, no arguments, no interpolation: the configured path is one executable file or it is nothing.
The event goes in as JSON on standard input, which is then closed. The hook has its own session and a time
limit; whatever it does (hang, print without end, exit without reading, leave a daemon behind) delays nothing
but its own result. A failure is a result like any other: it is shown and never tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopsup.clock import Clock

TIMEOUT_S = 10.0  # a notification takes well under a second; a slow mail server gets the rest
TERM_GRACE_S = 2.0  # between SIGTERM and SIGKILL: time to remove a temporary file
KILL_GRACE_S = 2.0  # the kernel needs milliseconds; beyond this the hook is stuck in a system call
DRAIN_GRACE_S = 0.5  # after the exit, for output still in the pipe; a daemon that holds it open gets no more
OUTPUT_LIMIT = 8 * 1024  # bytes of output kept: the end of a traceback, not a log
CHUNK = 64 * 1024  # the size of a pipe: one read empties it
HOME = "/"  # always there, and nothing an agent wrote lies in it


@dataclass(frozen=True, slots=True)
class Limits:
    """The grace periods of one run, in seconds."""

    timeout_s: float = TIMEOUT_S
    term_grace_s: float = TERM_GRACE_S
    kill_grace_s: float = KILL_GRACE_S
    drain_grace_s: float = DRAIN_GRACE_S


@dataclass(frozen=True, slots=True)
class HookResult:
    """How a hook ended. `signal` is a name like SIGSEGV; `error` says why it did not run; `output` is its
    last output, standard output and standard error as they came.
    """

    path: str
    exit: int | None = None
    signal: str | None = None
    timeout: bool = False
    error: str | None = None
    duration_ms: int = 0
    output: str = ""

    @property
    def ok(self) -> bool:
        return self.exit == 0 and not self.timeout

    def data(self) -> dict[str, Any]:
        """The data of a `loop.hook` event."""
        out: dict[str, Any] = {"path": self.path}
        if self.exit is not None:
            out["exit"] = self.exit
        if self.signal is not None:
            out["signal"] = self.signal
        if self.timeout:
            out["timeout"] = True
        if self.error is not None:
            out["error"] = self.error
        out["durationMs"] = self.duration_ms
        if self.output:
            out["stderr"] = self.output
        return out

    def describe(self) -> str:
        """One line for supervisor.log and for people."""
        if self.error is not None:
            return f"the attention hook did not run: {self.error}"
        how = f"signal {self.signal}" if self.signal is not None else f"exit status {self.exit}"
        after = f"after {self.duration_ms} ms"
        if self.timeout:
            return f"the attention hook {self.path!r} was ended for taking too long ({how} {after})"
        return f"the attention hook {self.path!r} ended with {how} {after}"


def fault(path: str) -> str | None:
    """Why `path` cannot be a hook, in one sentence; None if it can."""
    if "\0" in path or not Path(path).is_absolute():
        return f"{path!r} is not an absolute path; name the hook like /home/me/bin/hook"
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"{path!r}: {error.strerror}; a hook is one executable file, without arguments"
    if not stat.S_ISREG(mode):
        return f"{path!r} is not a file; a hook is one executable file"
    if not os.access(path, os.X_OK):
        return f"{path!r} is not executable; run chmod +x on it"
    return None


async def run_hook(
    path: str, event: bytes, *, env: Mapping[str, str], clock: Clock, limits: Limits | None = None
) -> HookResult:
    """Run the hook once and wait for it within its limits. Never raises for anything the hook is or does.

    Cancelling ends the hook's process group and waits until it is gone.
    """
    reason = fault(path)
    if reason is not None:
        return HookResult(path, error=reason)
    began = clock.now().mono
    try:
        run = await _Run.spawn(path, event, env)
    except (OSError, ValueError) as error:  # a wrong interpreter line, a full process table, a NUL in the environment
        words = error.strerror if isinstance(error, OSError) else str(error)
        return HookResult(path, error=f"{path!r} cannot be executed: {words}")
    timeout = await run.finish(limits or Limits())
    code = run.process.returncode
    return HookResult(
        path,
        exit=code if code is not None and code >= 0 else None,
        signal=_signal_name(-code) if code is not None and code < 0 else None,
        timeout=timeout,
        error="it could not be killed" if code is None else None,
        duration_ms=max(0, clock.now().mono - began),
        output=run.output.kept.decode("utf-8", "replace"),
    )


def spawn_detached(folder: Path, on_attention: str, event: Mapping[str, Any]) -> None:
    """Run the hook in a process of its own, for a command that works without a supervisor and will not wait.

    The outcome becomes a `loop.hook` event of the session in `folder` (see hook_run). OSError: it could not start.
    """
    order = {"folder": str(folder), "path": on_attention, "event": dict(event)}
    with tempfile.TemporaryFile() as stdin:  # a file, not a pipe: 1 MiB of objective must not make the command wait
        stdin.write(json.dumps(order, ensure_ascii=True).encode("ascii"))
        stdin.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loopsup", "hook-run"],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=HOME,
            start_new_session=True,
        )
    process.returncode = 0  # nobody waits for it: it outlives the command, which is what Popen would warn of


class _Run:
    """One hook process and our ends of its two pipes.

    The pipes are our own, not asyncio's: there, waiting for the process may mean waiting for every holder
    of its pipes too.
    """

    def __init__(self, process: asyncio.subprocess.Process, feed: _Feed, output: _Output) -> None:
        self.process = process
        self.output = output
        self._feed = feed

    @classmethod
    async def spawn(cls, path: str, event: bytes, env: Mapping[str, str]) -> _Run:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            stdin, write_end = os.pipe()
            theirs.callback(os.close, stdin)
            feed = _Feed(write_end, event)
            ours.callback(feed.close)
            read_end, stdout = os.pipe()
            theirs.callback(os.close, stdout)
            output = _Output(read_end)
            ours.callback(output.close)
            process = await asyncio.create_subprocess_exec(
                path,
                stdin=stdin,
                stdout=stdout,
                stderr=stdout,
                cwd=HOME,
                env=dict(env),
                start_new_session=True,
            )
            ours.pop_all()
        return cls(process, feed, output)

    async def finish(self, limits: Limits) -> bool:
        """Wait, or end it. True if it had to be ended."""
        try:
            if await self._gone(limits.timeout_s):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.output.ended.wait(), limits.drain_grace_s)
                return False
            self._signal(signal.SIGTERM)
            await self._gone(limits.term_grace_s)
            self._signal(signal.SIGKILL)  # in every case: children that outlived the TERM go too
            await self._gone(limits.kill_grace_s)
            return True
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            await self._gone(limits.kill_grace_s)
            raise
        finally:
            self._feed.close()
            self.output.close()

    async def _gone(self, grace_s: float) -> bool:
        try:
            await asyncio.wait_for(self.process.wait(), grace_s)
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Feed:
    """Writes the event into the hook's standard input as it is taken, then closes it."""

    def __init__(self, fd: int, event: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = fd
        self._rest = memoryview(event)
        os.set_blocking(fd, False)
        self._loop.add_writer(fd, self._write)

    def _write(self) -> None:
        assert self._fd is not None
        try:
            self._rest = self._rest[os.write(self._fd, self._rest) :]
        except BlockingIOError:
            return
        except OSError:  # EPIPE: the hook does not want to know
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = None


class _Output:
    """Reads whatever the hook prints, so that it never blocks, and keeps the end of it."""

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = fd
        self.kept = b""
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        assert self._fd is not None
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.kept = (self.kept + data)[-OUTPUT_LIMIT:]
        if not data:
            self.close()

    def close(self) -> None:
        self.ended.set()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
