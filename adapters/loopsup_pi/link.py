"""The Unix socket between the adapter and its extension inside Pi: one JSON object a line.

From the extension: hello (with the token), decide, tool, interrupted, dropped (an answer is not wanted any more),
forking, branch, appended; where Pi has no other stream (linked.py) also event, accepted, command, goodbye. To it:
answer (to a record with an id), append, end and retry (stream_rules.ts), and there prompt, abort, released. Rules:
mode 0600 in a private directory; nothing is heard before a hello with the right token; the newest connection is
the extension (Pi makes a new one when it reloads or changes its session).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from loopsup.wire.jsonl import LineSplitter

MAX_PATH = 100  # bytes; the kernel's limit for a socket path is 104 to 108
MAX_LINE = 16 * 1024 * 1024  # a decision is small; a model may still paste a log into its evidence
APPEND_TIMEOUT_S = 5.0  # an entry is appended in milliseconds

Record = dict[str, Any]
# Returns what is sent back where the record has an id.
Heard = Callable[[Record], Awaitable[Record | None]]


class Link:
    """The listening side. `heard` gets every record of the extension, its hello first."""

    def __init__(
        self,
        run_dir: Path,
        heard: Heard,
        log: Callable[[str], None],
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._run_dir = run_dir
        self._heard = heard
        self._log = log
        self._gone = gone  # the connection is over; everything it said has been heard
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self._path = run_dir
        self._own_dir: str | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._apart = asyncio.Event()  # nobody is connected, and everything that was said has been heard
        self._apart.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._entries: dict[int, asyncio.Future[str | None]] = {}
        self._next_entry = 1

    async def open(self) -> None:
        """Listen. OSError."""
        path = self._run_dir / f"pi-{secrets.token_hex(4)}.sock"
        if len(os.fsencode(path)) > MAX_PATH:
            self._own_dir = tempfile.mkdtemp(prefix="loopsup-pi-")  # 0700 and ours
            path = Path(self._own_dir) / path.name
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(os.fspath(path))
            path.chmod(0o600)  # before anybody can be accepted
            self._server = await asyncio.start_unix_server(self._serve, sock=listener)
        except BaseException:
            listener.close()
            raise
        self._path = path

    def setup(self, permissions: Mapping[str, Any], session: str = "", hold_ms: int = 0) -> str:
        """What the extension needs to know, for its environment variable."""
        known = {"socket": os.fspath(self._path), "token": self._token, "session": session}
        return json.dumps({**known, "permissions": permissions, "holdMs": hold_ms})

    @property
    def connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    async def parted(self, within_s: float) -> None:
        """Until nobody is connected and all that was said has been heard, but no longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._apart.wait(), within_s)

    async def tell(self, record: Record) -> bool:
        """Send without an answer; False if nobody is there."""
        try:
            await self._send(record)
        except OSError:
            return False
        return True

    async def append(self, entry: str, data: Record, notice: str | None = None) -> bool:
        """Have an entry appended to the present branch (and a notice shown); False if nobody says it was."""
        try:
            return await self._ordered({"type": "append", "entry": entry, "data": data, "notice": notice}) is None
        except (TimeoutError, OSError):
            return False

    async def retry(self, text: str, keep: bool) -> str | None:
        """Have the model try again, after this reminder: None, or why Pi did not begin. TimeoutError, OSError."""
        return await self._ordered({"type": "retry", "text": text, "keep": keep})

    async def end(self) -> None:
        """End the response under way for a rule. OSError."""
        await self._send({"type": "end"})

    async def _ordered(self, record: Record) -> str | None:
        """Until the extension says that it has done it (None), or why it did not."""
        number, done = self._next_entry, asyncio.get_running_loop().create_future()
        self._next_entry += 1
        self._entries[number] = done
        try:
            await self._send({"id": number, **record})
            return await asyncio.wait_for(done, APPEND_TIMEOUT_S)
        finally:
            self._entries.pop(number, None)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            self._path.unlink()
        if self._own_dir is not None:
            shutil.rmtree(self._own_dir, ignore_errors=True)

    async def _send(self, record: Record) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ConnectionResetError("the extension is not connected")
        self._writer.write(json.dumps(record).encode("ascii") + b"\n")
        await self._writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        splitter = LineSplitter(MAX_LINE)
        known = False
        try:
            while data := await reader.read(64 * 1024):
                for line in splitter.feed(data):
                    record = _object(line)
                    if not known and not self._welcome(record):
                        self._log("a stranger on the socket of the Pi extension was turned away")
                        return
                    if not known:
                        known, self._writer = True, writer
                        self._apart.clear()
                    self._start(self._take(record, writer))
        except (OSError, ValueError, RecursionError) as error:
            self._log(f"the connection of the Pi extension broke: {error}")
        except asyncio.CancelledError:
            pass  # closing; the task of a connection is nobody's to await
        finally:
            self._tasks.discard(task)
            if self._writer is writer:
                self._writer = None
                self._start(self._tell_gone())
            writer.close()

    async def _tell_gone(self) -> None:
        if self._writer is None:  # no newer connection
            self._apart.set()
            self._gone()

    def _welcome(self, record: Record) -> bool:
        return record.get("type") == "hello" and hmac.compare_digest(
            str(record.pop("token", "")).encode("utf-8", "replace"), self._token.encode("ascii")
        )

    def _start(self, work: Awaitable[None]) -> None:
        """Records are answered side by side: a fork must not wait behind a decision."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, record: Record, writer: asyncio.StreamWriter) -> None:
        if record.get("type") == "appended":
            waiting = self._entries.get(record.get("id", 0))
            if waiting is not None and not waiting.done():
                refused = record.get("refused")
                waiting.set_result(None if refused is None else str(refused))
            return
        answer = await self._heard(record)
        if "id" in record and not writer.is_closing():
            writer.write(json.dumps({"type": "answer", "id": record["id"], **(answer or {})}).encode("ascii") + b"\n")
            with contextlib.suppress(OSError):
                await writer.drain()


def _object(line: bytes) -> Record:
    obj = json.loads(line)
    if not isinstance(obj, dict):
        raise ValueError("not a JSON object")
    return obj
