"""The control socket: who may ask, one request a connection, streams for those who stay.

A peer must be the same user. A peer that runs below the agent (its process tree, or `LOOPSUP_AGENT` in its
environment) may look but not decide for the person.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from loopsup.errors import LoopsupError, RefusedError, StorageError, UsageError
from loopsup.shell.handlers import Handlers
from loopsup.store.home import private_dir
from loopsup.wire.control import (
    AGENT_MARK,
    AGENT_VERBS,
    MAX_LINE,
    Request,
    Response,
    decode_request,
    encode_response,
)
from loopsup.wire.jsonl import LineSplitter

REQUEST_TIMEOUT_S = 30.0  # a client sends its one line at once; a stuck one must not hold a descriptor
READ_CHUNK = 64 * 1024
MAX_ANCESTORS = 64  # a process tree this deep is a loop


class ControlServer:
    """Serves `handlers` on a Unix socket."""

    def __init__(self, path: Path, handlers: Handlers, agent_pid: Callable[[], int | None]) -> None:
        self._path = path
        self._handlers = handlers
        self._agent_pid = agent_pid
        self._server: asyncio.Server | None = None
        self._made: tuple[int, int] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """StorageError if the socket cannot be made."""
        private_dir(self._path.parent)
        try:
            _make_way(self._path)
            self._server = await asyncio.start_unix_server(self._connected, sock=_bound(self._path))
            self._made = _place(self._path)
        except OSError as error:
            raise StorageError(f"the control socket {self._path} cannot be made: {error.strerror}") from error

    @property
    def vanished(self) -> bool:
        """Somebody removed the socket's file (a cleaner of temporary files, say) or put something else there."""
        return self._server is not None and _place(self._path) != self._made

    async def restart(self) -> None:
        """Listen at a fresh file. StorageError: not yet; it may be tried again."""
        before = self._server
        await self.start()
        if before is not None:
            before.close()

    async def stop(self) -> None:
        """No new connections; those open get their last lines first."""
        await self._stop_listening()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=1.0)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, TimeoutError):
            pass  # the client went away; a session never depends on one
        except asyncio.CancelledError:
            writer.transport.abort()  # it does not read: what it did not get must not hold the end
            raise
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, OSError):
                await writer.wait_closed()
            self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer.get_extra_info("socket"))
        if peer is not None and peer[1] != os.geteuid():
            return
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = decode_request(await _read_line(reader))
            if request.verb not in AGENT_VERBS and peer is not None and self._below_agent(peer[0]):
                raise RefusedError("this comes from the agent itself; only a person may do that")
            if request.verb == "terminal":
                await self._handlers.gallery.serve(request, reader, writer)
                return
            gone = asyncio.ensure_future(_gone(reader))
            try:
                await self._answer(request, writer, gone)
            finally:
                gone.cancel()
        except LoopsupError as error:
            writer.write(encode_response(Response(error=error)))
            await writer.drain()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter, gone: asyncio.Future[None]) -> None:
        if request.verb == "follow":
            await self._handlers.follow(request, writer, gone)
            return
        work = asyncio.ensure_future(self._handlers.handle(request))
        waiting: list[asyncio.Future[Any]] = [work, gone]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and request.verb in ("wait", "say"):
            work.cancel()  # waiting for nobody; what was asked has been done
            return
        writer.write(encode_response(await work))
        await writer.drain()

    def _below_agent(self, pid: int) -> bool:
        """Also true where it cannot be told any more: a tool of the agent could send its line and end."""
        if pid == 0:  # outside our pid namespace, so no descendant of ours
            return False
        agent = self._agent_pid()
        try:
            process: psutil.Process | None = psutil.Process(pid)
            with contextlib.suppress(psutil.AccessDenied):
                if process is not None and process.environ().get(AGENT_MARK):
                    return True
            for _ in range(MAX_ANCESTORS):
                if process is None:
                    return False
                if process.pid == agent:
                    return True
                process = process.parent()
        except psutil.AccessDenied:
            return False
        except psutil.Error:
            return True
        return False


def _place(path: Path) -> tuple[int, int] | None:
    """Which file lies there, None for none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_way(path: Path) -> None:
    """Remove the socket of a dead supervisor; whatever else lies there is not ours to remove."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise StorageError(f"{path}, the place of the control socket, is not a socket of this user; move it away")
    path.unlink()


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    splitter = LineSplitter(MAX_LINE)
    size = 0
    while data := await reader.read(READ_CHUNK):
        size += len(data)
        if size > MAX_LINE:
            raise UsageError(f"the request is longer than {MAX_LINE} bytes")
        if lines := splitter.feed(data):
            return lines[0]
    raise ConnectionResetError


async def _gone(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(READ_CHUNK):
            pass


def _bound(path: Path) -> socket.socket:
    """A socket at `path`, 0600 from its first instant. No await in between: the mask is the whole process's."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listening.bind(os.fspath(path))
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(old)
    return listening


def _peer(connected: socket.socket) -> tuple[int, int] | None:
    """(pid, uid) of the other end, None where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return int(pid), int(uid)
