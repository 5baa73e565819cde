"""A child process of its own session, read line by line, ended with its whole tree.

For adapters (agents on stdio) and the hook. The child gets its own session and process group, so a
terminal's Ctrl-C does not reach it. Ending it is a ladder of named grace periods: ask (the caller's way,
by default closing its standard input), TERM to the group, KILL to the group; then the same two for whatever
is left of its tree: descendants in sessions of their own, and members of its session that lost their parent.
A process that left both the tree and the session before `close` (a daemon) is none of ours any more. A child that
is killed has no tree any more, so while it talks a look is taken at it: what was in it then is ended by `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from loopsup.wire.jsonl import LineSplitter

ASK_GRACE_S = 5.0  # an agent saves its session in well under a second; a slow disk gets the rest
TERM_GRACE_S = 3.0  # the same again for one that ignored the request
KILL_GRACE_S = 2.0  # the kernel needs milliseconds; beyond this the process is stuck in a system call
DRAIN_GRACE_S = 1.0  # what an ended child wrote is at most two full buffers: read within milliseconds
LOOK_S = 0.5  # a tool has been spawned by then; a look at the process table costs some milliseconds
POLL_S = 0.01  # descendants are not our children: their end can only be looked for
READ_CHUNK = 256 * 1024
MAX_LINE = 256 * 1024 * 1024  # one tool result of many MiB is one line; beyond this it is dropped and told
MAX_STDERR_LINE = 1024 * 1024  # diagnostics for people; longer lines are no words


@dataclass(frozen=True, slots=True)
class Ladder:
    """How long each rung of `close` waits, in seconds."""

    ask_s: float = ASK_GRACE_S
    term_s: float = TERM_GRACE_S
    kill_s: float = KILL_GRACE_S


class Tree:
    """The processes of a leader that was started in a session (and process group) of its own.

    `returncode` tells whether the leader has ended, `exited` is set when it has. `mark`: a variable in the
    environment of every process of the tree, by which those are found whose parent is gone already.
    """

    def __init__(
        self,
        pid: int,
        returncode: Callable[[], int | None],
        exited: asyncio.Event,
        ladder: Ladder = Ladder(),
        mark: tuple[str, str] | None = None,
    ) -> None:
        self.pid = pid
        self._returncode = returncode
        self._exited = exited
        self._ladder = ladder
        self._mark = mark
        self._leader: psutil.Process | None = None
        self._family: set[psutil.Process] = set()
        self.seen: set[psutil.Process] = set()  # the tree at the last look
        with contextlib.suppress(psutil.Error):  # it may have ended already
            self._leader = psutil.Process(pid)

    def look(self) -> None:
        """Remember the tree as it is, for the case that the leader is killed."""
        with contextlib.suppress(psutil.Error):
            if self._leader is not None and self._returncode() is None:
                self.seen = set(self._leader.children(recursive=True))

    async def end(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Climb the ladder until the whole tree is gone. Cancelled on the way: it is killed."""
        if self._returncode() is not None:  # it ended by itself: who belonged to it can only be remembered
            self._family |= self.seen
        try:
            self._remember_family()
            await self._climb(ask)
            await self.sweep()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """KILL the whole tree at once."""
        self._remember_family()
        self._signal_group(signal.SIGKILL)
        self._signal_family(signal.SIGKILL)

    async def _climb(self, ask: Callable[[], Awaitable[None]]) -> None:
        if self._returncode() is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ladder.ask_s):
                with contextlib.suppress(OSError):  # it cannot be asked any more: it may be ending just now
                    await ask()
                await self._exited.wait()
        for number, grace_s in ((signal.SIGTERM, self._ladder.term_s), (signal.SIGKILL, self._ladder.kill_s)):
            if self._returncode() is not None:
                return
            self._remember_family()
            self._signal_group(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), grace_s)

    async def sweep(self) -> None:
        """What outlived the leader: asked with TERM, then killed."""
        self._remember_family()
        for number, grace_s in ((signal.SIGTERM, self._ladder.term_s), (signal.SIGKILL, self._ladder.kill_s)):
            self._signal_family(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    while any(map(_alive, self._family)):  # noqa: ASYNC110 (no event tells it)
                        await asyncio.sleep(POLL_S)
                    return

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._reused():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _signal_family(self, number: signal.Signals) -> None:
        for member in self._family:
            with contextlib.suppress(psutil.Error):  # psutil refuses a pid that was given to another process
                member.send_signal(number)

    def _remember_family(self) -> None:
        """Descendants, wherever they went, and all of the session, whoever their parent is."""
        if self._leader is None or (self._reused() and self._mark is None):
            return
        with contextlib.suppress(psutil.Error):
            self._family.update(self._leader.children(recursive=True))
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if pid != self.pid and self._is_ours(pid):
                    self._family.add(psutil.Process(pid))

    def _is_ours(self, pid: int) -> bool:
        if self._mark is not None and psutil.Process(pid).environ().get(self._mark[0]) == self._mark[1]:
            return True
        return not self._reused() and os.getsid(pid) == self.pid

    def _reused(self) -> bool:
        """The child has ended and its number belongs to a stranger: group and session are not ours."""
        if self._returncode() is None:
            return False
        return psutil.pid_exists(self.pid) and (self._leader is None or not self._leader.is_running())


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells the exit itself. `Process.wait` waits for the pipes, too, which a grandchild may hold for ever."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=READ_CHUNK, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Child:
    """One running child. `on_line` gets every line of stdout without its LF, on the event loop's thread."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol, ladder: Ladder) -> None:
        self._transport = transport
        self._exited = protocol.exited
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._readers: list[asyncio.Task[None]] = []
        self._tree = Tree(self._process.pid, transport.get_returncode, protocol.exited, ladder)
        self._look: asyncio.TimerHandle | None = None

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
        ladder: Ladder = Ladder(),
    ) -> Child:
        """Start `argv` (no shell). OSError if it cannot be executed."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
        child = cls(transport, protocol, ladder)
        out, err = child._process.stdout, child._process.stderr
        assert out is not None
        assert err is not None
        child._readers = [
            asyncio.create_task(_pump(out, LineSplitter(MAX_LINE), child._looking(on_line), on_dropped)),
            asyncio.create_task(
                _pump(err, LineSplitter(MAX_STDERR_LINE), lambda raw: on_stderr(raw.decode("utf-8", "replace")))
            ),
        ]
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def send(self, line: bytes) -> None:
        """Write one line (LF included by the caller). ConnectionError once the child is gone."""
        assert self._process.stdin is not None
        if self.returncode is not None or self._process.stdin.is_closing():
            raise ConnectionResetError("the agent's input is closed")
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def wait(self) -> str:
        """Wait for the exit and for the last lines; returns how it ended, for people."""
        await self._exited.wait()
        await asyncio.wait(self._readers, timeout=DRAIN_GRACE_S)
        self._let_go()  # a grandchild may hold the pipes open
        code = self.returncode
        assert code is not None
        return describe_exit(code)

    async def close(self, ask: Callable[[], Awaitable[None]] | None = None) -> None:
        """Climb the ladder until the whole tree is gone. Safe to call more than once.

        Whatever happens on the way (the caller is cancelled, `ask` fails), the tree is killed.
        """
        try:
            await self._tree.end(ask or self._close_stdin)
            await asyncio.wait(self._readers, timeout=DRAIN_GRACE_S)  # its last words
        finally:
            self._let_go()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def kill(self) -> None:
        """KILL the whole tree at once (last resort, and for tests)."""
        self._tree.kill()

    async def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _looking(self, on_line: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """`on_line`, and a look at the tree soon after."""

        def heard(line: bytes) -> None:
            if self._look is None:
                self._look = asyncio.get_running_loop().call_later(LOOK_S, self._take_a_look)
            on_line(line)

        return heard

    def _take_a_look(self) -> None:
        self._look = None
        self._tree.look()

    def _let_go(self) -> None:
        if self._look is not None:
            self._look.cancel()
        for reader in self._readers:
            reader.cancel()
        if self.returncode is not None:
            self._transport.close()


def _alive(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def _pump(
    stream: asyncio.StreamReader,
    splitter: LineSplitter,
    on_line: Callable[[bytes], None],
    on_dropped: Callable[[int], None] = lambda _: None,
) -> None:
    """Always drained, also when a line cannot be dealt with: an agent blocked on its output cannot end."""
    while data := await stream.read(READ_CHUNK):
        dropped = splitter.dropped
        for line in splitter.feed(data):
            _tell(on_line, line)
        if splitter.dropped > dropped:
            on_dropped(splitter.dropped - dropped)
    if rest := splitter.rest():
        _tell(on_line, rest)


def _tell(on_line: Callable[[bytes], None], line: bytes) -> None:
    try:
        on_line(line)
    except Exception as error:  # a fault of the caller: told once for each line, by the loop's own handler
        context = {"message": f"a line of {len(line)} bytes could not be dealt with", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def describe_exit(code: int) -> str:
    """`exit status 3` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
