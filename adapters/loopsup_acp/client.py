"""The official SDK's connection over a child process of ours.

`acp.connection.Connection` pairs requests with responses and answers the agent's own requests. It gets its
messages from here, one by one: notifications never reach it, because it would run each as a task of its own and
report those it does not know as errors; they go to `on_notification` in the order of the wire. The SDK is
imported in a thread (it takes a second) and only when an agent is started.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loopsup.process import Child

MAX_WAITING = 1000  # messages read and not yet dealt with; an agent that floods us with requests loses the rest

Record = dict[str, Any]
OnRequest = Callable[[str, Mapping[str, Any]], Awaitable[Record | None]]


class RequestFailedError(Exception):
    """The agent answered with an error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Client:
    """One connection. `feed` gets every line the agent prints; `over` when it has ended."""

    def __init__(
        self,
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: OnRequest,
        on_noise: Callable[[str], None],
    ) -> None:
        self._on_notification = on_notification
        self._on_request = on_request
        self._on_noise = on_noise
        self._transport = _Transport()
        self._connection: Any = None
        self._errors: Any = None

    async def connect(self, child: Child) -> None:
        """From now on requests can be sent."""
        sdk = await asyncio.to_thread(importlib.import_module, "acp.connection")
        self._errors = (await asyncio.to_thread(importlib.import_module, "acp.exceptions")).RequestError
        self._transport.child = child
        self._connection = sdk.Connection(self._handle, self._transport)

    def feed(self, line: bytes) -> None:
        """One line of the agent. What is no message is noise: some print warnings there."""
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            if line.strip():
                self._on_noise(line.decode("utf-8", "replace"))
        elif "method" in record and "id" not in record:
            params = record.get("params")
            self._on_notification(str(record["method"]), params if isinstance(params, dict) else {})
        elif not self._transport.put(record):
            self._on_noise("(more requests at once than can be answered; they are dropped)")

    def over(self) -> None:
        """Nothing more will come: pending requests fail with ConnectionError."""
        self._transport.end()

    async def request(self, method: str, params: Record, sent: Callable[[], None] | None = None) -> Record:
        """The result, {} where it is none. `sent` is called once the request has been written.

        RequestFailedError: the agent's error. ConnectionError: it has ended.
        """
        self._transport.written = sent
        try:
            result = await self._connection.send_request(method, params)
        except self._errors as error:
            raise RequestFailedError(error.code, str(error), error.data) from None
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Record) -> None:
        """ConnectionError once the agent has ended."""
        await self._connection.send_notification(method, params)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _handle(self, method: str, params: object, is_notification: bool) -> Record:
        """A request of the agent. What is not offered is refused at once: an agent would wait for ever."""
        result = await self._on_request(method, params if isinstance(params, dict) else {})
        if result is None:
            raise self._errors.method_not_found(method)
        return result


class _Transport:
    """`acp._transport.Transport`: messages to and from the child."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.written: Callable[[], None] | None = None
        self._waiting: asyncio.Queue[Record | None] = asyncio.Queue()

    async def send(self, message: Record) -> None:
        written, self.written = self.written, None
        if self.child is None:
            raise ConnectionResetError("the agent is not running")
        await self.child.send(json.dumps(message, ensure_ascii=True).encode("ascii") + b"\n")
        if written is not None:
            written()

    async def receive(self) -> Record | None:
        return await self._waiting.get()

    async def close(self) -> None:
        self.end()

    def put(self, message: Record) -> bool:
        """False where too much waits already."""
        if "method" in message and self._waiting.qsize() >= MAX_WAITING:
            return False
        self._waiting.put_nowait(message)
        return True

    def end(self) -> None:
        self._waiting.put_nowait(None)
