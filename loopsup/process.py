"""A child process of its own session, read line by line, ended with its whole tree.

For adapters (agents on stdio) and the hook. The child gets its own session and process group, so a
terminal's Ctrl-C does not reach it; ending it is a ladder of named grace periods: ask (the caller's way,
by default closing its standard input), TERM to the group, KILL to the group and to every descendant seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil

from loopsup.wire.jsonl import LineSplitter

ASK_GRACE_S = 5.0  # an agent saves its session in well under a second; a slow disk gets the rest
TERM_GRACE_S = 3.0  # the same again for one that ignored the request
KILL_GRACE_S = 2.0  # the kernel needs milliseconds; beyond this the process is stuck in a system call
READ_CHUNK = 256 * 1024
MAX_LINE = 256 * 1024 * 1024  # one tool result of many MiB is one line; beyond this it is dropped and told


class Child:
    """One running child. `on_line` gets every line of stdout without its LF, on the event loop's thread."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._readers: list[asyncio.Task[None]] = []
        self._family: dict[int, float] = {}

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_line: Callable[[bytes], None],
        on_stderr: Callable[[str], None],
        on_dropped: Callable[[int], None] = lambda _: None,
    ) -> Child:
        """Start `argv` (no shell). OSError if it cannot be executed."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
        child = cls(process)
        assert process.stdout is not None
        assert process.stderr is not None
        child._readers = [
            asyncio.create_task(_pump(process.stdout, LineSplitter(MAX_LINE), on_line, on_dropped)),
            asyncio.create_task(
                _pump(process.stderr, LineSplitter(MAX_LINE), lambda raw: on_stderr(raw.decode("utf-8", "replace")))
            ),
        ]
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def send(self, line: bytes) -> None:
        """Write one line (LF included by the caller). ConnectionError once the child is gone."""
        assert self._process.stdin is not None
        if self._process.stdin.is_closing():
            raise ConnectionResetError("the agent's input is closed")
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def wait(self) -> str:
        """Wait for the exit and for the last lines; returns how it ended, for people."""
        code = await self._process.wait()
        _, pending = await asyncio.wait(self._readers, timeout=KILL_GRACE_S)
        for reader in pending:  # a grandchild may hold the pipe open
            reader.cancel()
        return describe_exit(code)

    async def close(self, ask: Callable[[], Awaitable[None]] | None = None) -> None:
        """Climb the ladder until the whole tree is gone. Safe to call more than once."""
        self._remember_family()
        with contextlib.suppress(ConnectionError, OSError):
            await (ask() if ask is not None else self._close_stdin())
        if not await self._gone(ASK_GRACE_S):
            self._remember_family()
            self._signal_group(signal.SIGTERM)
            if not await self._gone(TERM_GRACE_S):
                self._signal_group(signal.SIGKILL)
                await self._gone(KILL_GRACE_S)
        self._sweep()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def kill(self) -> None:
        """KILL the group at once (last resort, and for tests)."""
        self._remember_family()
        self._signal_group(signal.SIGKILL)
        self._sweep()

    async def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def _gone(self, grace_s: float) -> bool:
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            return False
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _remember_family(self) -> None:
        """Descendants may have left the group; (pid, start time) tells them from a reused pid."""
        with contextlib.suppress(psutil.Error):
            for member in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    self._family[member.pid] = member.create_time()

    def _sweep(self) -> None:
        self._signal_group(signal.SIGKILL)
        for pid, started in self._family.items():
            with contextlib.suppress(psutil.Error):
                member = psutil.Process(pid)
                if member.create_time() == started:
                    member.kill()


async def _pump(
    stream: asyncio.StreamReader,
    splitter: LineSplitter,
    on_line: Callable[[bytes], None],
    on_dropped: Callable[[int], None] = lambda _: None,
) -> None:
    """Always drained: an agent blocked on its output cannot end."""
    while data := await stream.read(READ_CHUNK):
        dropped = splitter.dropped
        for line in splitter.feed(data):
            on_line(line)
        if splitter.dropped > dropped:
            on_dropped(splitter.dropped - dropped)
    if rest := splitter.rest():
        on_line(rest)


def describe_exit(code: int) -> str:
    """`exit status 3` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
