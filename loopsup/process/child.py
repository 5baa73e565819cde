"""A child process on pipes, read line by line, that ends with its whole tree (tree.py).

For adapters (agents on stdio) and the hook. The child gets its own session and process group, so a
terminal's Ctrl-C does not reach it. A child that is killed has no tree any more, so while it talks a look is
taken at it: what was in it then is ended by `close`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from loopsup.process.tree import LADDER, Ladder, Tree
from loopsup.wire.jsonl import LineSplitter

DRAIN_GRACE_S = 1.0  # what an ended child wrote is at most two full buffers: read within milliseconds
LOOK_S = 0.5  # a tool has been spawned by then; a look at the process table costs some milliseconds
READ_CHUNK = 256 * 1024
MAX_LINE = 256 * 1024 * 1024  # one tool result of many MiB is one line; beyond this it is dropped and told
MAX_STDERR_LINE = 1024 * 1024  # diagnostics for people; longer lines are no words


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
        ladder: Ladder = LADDER,
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
