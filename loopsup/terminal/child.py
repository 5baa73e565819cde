"""A child process on a pseudo-terminal of its own, always drained, ended with its whole tree.

Rules. The child leads a session of its own with the pty as its controlling terminal, so whatever happens to us it
is hung up by the kernel. Its output is read whether anybody looks or not: a program blocked on its terminal does
nothing. Nothing here ever waits for the program: what it does not read yet is queued. The end of its output is no
proof of its end, nor the other way round: a grandchild may hold the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from loopsup.process import DRAIN_GRACE_S, LOOK_S, Ladder, Tree, describe_exit

READ_CHUNK = 64 * 1024
READS_AT_ONCE = 16  # of at most 4 KiB each on Linux; then others have their turn
MAX_QUEUED = 8 * 1024 * 1024  # bytes for a program that does not read: twice the longest message
TERMINAL_LADDER = Ladder(ask_s=3.0)  # a TUI that is hung up saves and ends within half a second


class Size(NamedTuple):
    """Of a terminal."""

    rows: int
    cols: int


class _Protocol(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()


class TerminalChild:
    """One running program. `on_output` gets what it writes, on the event loop's thread."""

    def __init__(
        self,
        master: int,
        transport: asyncio.SubprocessTransport,
        exited: asyncio.Event,
        on_output: Callable[[bytes], None],
        ladder: Ladder,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._master: int | None = master
        self._transport = transport
        self._exited = exited
        self._on_output = on_output
        self._tree = Tree(transport.get_pid() or 0, transport.get_returncode, exited, ladder)
        self._look: asyncio.TimerHandle | None = None
        self._queue = bytearray()
        self._written = asyncio.Event()
        self._written.set()
        self._eof = asyncio.Event()
        self._loop.add_reader(master, self._readable)

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        size: Size,
        on_output: Callable[[bytes], None],
        ladder: Ladder = TERMINAL_LADDER,
    ) -> TerminalChild:
        """Start `argv` (no shell). OSError if it cannot be executed."""
        master, slave = os.openpty()  # neither is inherited by any other child
        try:
            _set_size(slave, size)
            os.set_blocking(master, False)
            transport, protocol = await asyncio.get_running_loop().subprocess_exec(
                _Protocol,
                *argv,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                preexec_fn=_take_the_terminal,
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(master, transport, protocol.exited, on_output, ladder)

    @property
    def pid(self) -> int:
        return self._tree.pid

    def runs(self, command: re.Pattern[str]) -> bool:
        """A process with such a command line runs below it."""
        found = []
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.pid).children(recursive=True)
        for process in found:
            with contextlib.suppress(psutil.Error):
                if command.search(" ".join(process.cmdline())):
                    return True
        return False

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    def write(self, data: bytes) -> bool:
        """Queue input for the program; False: it is gone, or has not read for too long."""
        if self._master is None or self.returncode is not None or len(self._queue) + len(data) > MAX_QUEUED:
            return False
        self._queue += data
        self._writable()
        return True

    async def written(self, within_s: float) -> bool:
        """Whether the program's terminal took all of it in time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._written.wait(), within_s)
        return not self._queue

    def resize(self, size: Size) -> None:
        """The program is told (SIGWINCH) where the size really changes."""
        if self._master is not None:
            with contextlib.suppress(OSError):
                _set_size(self._master, size)

    async def wait(self) -> str:
        """Wait for the exit and the last output; returns how it ended, for people."""
        await self._exited.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._eof.wait(), DRAIN_GRACE_S)
        self._let_go()
        code = self.returncode
        assert code is not None
        return describe_exit(code)

    async def close(self) -> None:
        """Hang up, then TERM, then KILL, until the whole tree is gone. Safe to call more than once."""
        try:
            await self._tree.end(self._hang_up)
        finally:
            self._let_go()

    async def _hang_up(self) -> None:
        """What the end of its terminal means; the terminal stays for its last words."""
        for number in (signal.SIGHUP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    # ---- the pty ----------------------------------------------------------------------------------

    def _readable(self) -> None:
        for _ in range(READS_AT_ONCE):
            if self._master is None:
                return
            try:
                data = os.read(self._master, READ_CHUNK)
            except BlockingIOError:
                return
            except OSError:  # EIO: nobody has the other side open
                data = b""
            if not data:
                self._loop.remove_reader(self._master)
                self._eof.set()
                return
            if self._look is None:
                self._look = self._loop.call_later(LOOK_S, self._take_a_look)
            self._on_output(data)

    def _writable(self) -> None:
        while self._queue and self._master is not None:
            try:
                count = os.write(self._master, self._queue)
            except BlockingIOError:
                self._written.clear()
                self._loop.add_writer(self._master, self._writable)
                return
            except OSError:
                self._queue.clear()
                break
            del self._queue[:count]
        if self._master is not None:
            self._loop.remove_writer(self._master)
        self._written.set()

    def _take_a_look(self) -> None:
        self._look = None
        self._tree.look()

    def _let_go(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._master is not None:
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            os.close(self._master)
            self._master = None
        self._eof.set()
        if self.returncode is not None:
            self._transport.close()


def _take_the_terminal() -> None:
    """In the child, after setsid: standard input becomes its controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _set_size(fd: int, size: Size) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))
