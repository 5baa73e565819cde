"""The people attached to the agent's own screen, also while the agent comes and goes.

Rules. A viewer counts as a follower: the session stays open for it. A viewer that does not keep up loses what lies
between, never the session or another viewer: it gets the whole picture again. Leaving changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from loopsup.errors import RefusedError, UsageError
from loopsup.terminal.contract import Seat, Stage
from loopsup.wire import terminal
from loopsup.wire.control import Request, Response, encode_response
from loopsup.wire.jsonl import LineSplitter

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

MAX_BEHIND = 1024 * 1024  # bytes for a terminal that does not keep up; then it gets the picture instead
MAX_LINE = 4 * 1024 * 1024  # of a client's: a paste
READ_CHUNK = 64 * 1024
ABSENT = "the program is not running now; the loop brings it up for its next iteration"


class Viewer:
    """One attached terminal."""

    def __init__(self, rows: int, cols: int) -> None:
        self._size = (rows, cols)
        self._seat: Seat | None = None
        self._pending = bytearray()
        self._behind = False
        self._lines: list[terminal.FromSupervisor] = []
        self._news = asyncio.Event()

    def place(self, stage: Stage | None) -> None:
        """Before this program from now on, or before none."""
        self._leave()
        self._behind = False  # what was left out belongs to the program before
        if stage is None:
            self.tell(terminal.Absent(ABSENT))
        else:
            self._seat = stage.join(self._show, *self._size)

    def tell(self, line: terminal.FromSupervisor) -> None:
        self._flush()
        self._lines.append(line)
        self._news.set()

    async def next(self) -> bytes:
        """The next lines for the client."""
        await self._news.wait()
        self._news.clear()
        self._flush()
        lines, self._lines = self._lines, []
        if self._behind and self._seat is not None:
            self._behind = False
            self._seat.redraw()
        return b"".join(map(terminal.encode, lines))

    def heard(self, line: bytes) -> None:
        """A line of the client."""
        match terminal.from_client(line):
            case terminal.Input(data):
                if self._seat is not None:
                    self._seat.typed(data)
            case terminal.Resized(rows, cols):
                self._size = (rows, cols)
                if self._seat is not None:
                    self._seat.resized(rows, cols)

    def end(self) -> None:
        self._leave()

    def _leave(self) -> None:
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.leave()

    def _show(self, data: bytes) -> None:
        if self._behind:
            return
        self._pending += data
        self._behind = len(self._pending) > MAX_BEHIND
        self._news.set()

    def _flush(self) -> None:
        if self._pending:
            self._lines.append(terminal.Output(bytes(self._pending)))
            self._pending.clear()


class Gallery:
    """Lets people in."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def serve(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The stream of one viewer, until the session ends or it leaves. RefusedError, UsageError."""
        supervisor = self._supervisor
        rows, cols = terminal.size([request.args.get("rows"), request.args.get("cols")])
        if not supervisor.host.slot.capabilities.terminal:
            raise RefusedError(f"the agent '{supervisor.identity.agent}' has no screen of its own to attach to")
        await supervisor.opened.wait()
        writer.write(encode_response(Response(supervisor.status())))
        viewer = Viewer(rows, cols)
        present = supervisor.bus.join()
        supervisor.host.slot.watchers.add(viewer.place)
        try:
            viewer.place(supervisor.host.slot.stage)
            supervisor.touch()
            await self._until_over(viewer, reader, writer)
        finally:
            supervisor.host.slot.watchers.discard(viewer.place)
            viewer.end()
            supervisor.bus.unsubscribe(present)
            supervisor.touch()

    async def _until_over(self, viewer: Viewer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks = [
            asyncio.ensure_future(work)
            for work in (_listen(viewer, reader), _show(viewer, writer), self._supervisor.closed.wait())
        ]
        try:
            waiting: list[asyncio.Future[Any]] = [*tasks]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._supervisor.closed.is_set():
            writer.write(terminal.encode(terminal.Closed(self._supervisor.close_reason)))
            with contextlib.suppress(ConnectionError):
                await writer.drain()


async def _listen(viewer: Viewer, reader: asyncio.StreamReader) -> None:
    """Until the client is gone; one that talks nonsense is let go."""
    splitter = LineSplitter(MAX_LINE)
    with contextlib.suppress(ConnectionError, UsageError):
        while data := await reader.read(READ_CHUNK):
            for line in splitter.feed(data):
                viewer.heard(line)


async def _show(viewer: Viewer, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(await viewer.next())
            await writer.drain()
