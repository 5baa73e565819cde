"""Requests to Pi and their responses, over its standard input and output."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Record = dict[str, Any]

# A caller that wraps `prompt` in `asyncio.wait_for` gets its answer two rounds of the event loop later.
ROUNDS = 3


class Requests:
    """Pairs each request with its response by id."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[Record]] = {}
        self._next = 1

    def new_id(self) -> str:
        number, self._next = self._next, self._next + 1
        return f"loopsup-{number}"

    async def tell(self, command: Mapping[str, Any]) -> None:
        """Send without waiting for the response. ConnectionError."""
        await self._send(json.dumps({"id": self.new_id(), **command}).encode("ascii") + b"\n")

    async def ask(self, command: Mapping[str, Any], timeout_s: float | None) -> Record:
        """The response. TimeoutError, ConnectionError."""
        identity = str(command.get("id") or self.new_id())
        done: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = done
        try:
            await self.tell({**command, "id": identity})
            return await asyncio.wait_for(done, timeout_s)
        finally:
            self._waiting.pop(identity, None)

    def awaits(self, identity: str) -> bool:
        """Somebody still waits for this response."""
        return identity in self._waiting

    def resolve(self, response: Mapping[str, Any]) -> None:
        """A response came in; one nobody waits for any more is dropped."""
        waiting = self._waiting.get(str(response.get("id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(dict(response))

    def fail(self, reason: str) -> None:
        """Nothing will answer any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError(reason))


class Inbox:
    """Records in order, held back while the caller of `prompt` has not seen yet that it was accepted.

    Without it a fast model's settlement, read in the same chunk as the acceptance, would overtake it.
    """

    def __init__(self, deliver: Callable[[Record], None]) -> None:
        self._deliver = deliver
        self._records: deque[Record] = deque()
        self.released = asyncio.Event()
        self.released.set()

    def put(self, record: Record) -> None:
        self._records.append(record)
        self._drain()

    def hold(self) -> None:
        self.released.clear()

    def release_soon(self, rounds: int = ROUNDS) -> None:
        """Once the caller of the caller has gone on, too."""
        soon = asyncio.get_running_loop().call_soon
        if rounds:
            soon(self.release_soon, rounds - 1)
        else:
            soon(self.release)

    def release(self) -> None:
        self.released.set()
        self._drain()

    def _drain(self) -> None:
        while self._records and self.released.is_set():
            self._deliver(self._records.popleft())
