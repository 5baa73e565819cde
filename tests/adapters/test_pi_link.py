"""The extension's socket, spoken to by a fake extension."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loopsup_pi.link import Link


class Peer:
    """A connection to the link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, **record: Any) -> None:
        self.writer.write(json.dumps(record).encode() + b"\n")
        await self.writer.drain()

    async def receive(self) -> Any:
        line = await asyncio.wait_for(self.reader.readline(), 60)
        return json.loads(line) if line else None


class Opened:
    def __init__(self, link: Link, heard: list[dict[str, Any]], log: list[str]) -> None:
        self.link = link
        self.heard = heard
        self.log = log
        self.setup = json.loads(link.setup({"mode": "ask"}))

    @contextlib.asynccontextmanager
    async def peer(self, token: str | None = None) -> AsyncIterator[Peer]:
        peer = Peer(*await asyncio.open_unix_connection(self.setup["socket"]))
        try:
            await peer.send(type="hello", token=token or self.setup["token"], id=0)
            yield peer
        finally:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()


@contextlib.asynccontextmanager
async def opened(run_dir: Path) -> AsyncIterator[Opened]:
    heard: list[dict[str, Any]] = []
    log: list[str] = []

    async def hear(record: dict[str, Any]) -> dict[str, Any] | None:
        heard.append(record)
        if record["type"] == "forking":
            await asyncio.Event().wait()
        return {"accepted": True, "message": "yes"} if record["type"] == "decide" else None

    link = Link(run_dir, hear, log.append)
    await link.open()
    try:
        yield Opened(link, heard, log)
    finally:
        await link.close()


def test_only_the_owner_can_reach_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there:
            path = Path(there.setup["socket"])
            assert path.parent == tmp_path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()

    asyncio.run(scenario())


def test_a_directory_with_a_long_name_is_avoided(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()

    async def scenario() -> None:
        async with opened(deep) as there:
            path = Path(there.setup["socket"])
            assert len(str(path)) <= 100
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            async with there.peer() as peer:
                assert await peer.receive() == {"type": "answer", "id": 0}
        assert not path.parent.exists()

    asyncio.run(scenario())


def test_a_stranger_is_turned_away_unheard(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there:
            for guess in ("guess", "gu\u00e9ss", "\ud800"):
                async with there.peer(token=guess) as peer:
                    assert await peer.receive() is None
            assert there.heard == []
            assert there.log == ["a stranger on the socket of the Pi extension was turned away"] * 3

    asyncio.run(scenario())


def test_the_token_goes_no_further(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there, there.peer() as peer:
            await peer.receive()
            assert there.heard == [{"type": "hello", "id": 0}]

    asyncio.run(scenario())


def test_a_decision_is_answered_while_a_fork_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there, there.peer() as peer:
            await peer.receive()
            await peer.send(type="forking", id=1)
            await peer.send(type="decide", id=2, arguments={"decision": "complete"})
            assert await peer.receive() == {"type": "answer", "id": 2, "accepted": True, "message": "yes"}

    asyncio.run(scenario())


def test_an_entry_goes_to_the_newest_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there, there.peer() as old, there.peer() as new:
            await old.receive()
            await new.receive()
            marking = asyncio.create_task(there.link.append("loopsup", {"seq": 7}))
            record = await new.receive()
            expected = {"type": "append", "id": record["id"], "entry": "loopsup", "data": {"seq": 7}, "notice": None}
            assert record == expected
            await new.send(type="appended", id=record["id"])
            assert await marking is True

    asyncio.run(scenario())


def test_without_an_extension_no_entry_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there:
            assert await there.link.append("loopsup", {"seq": 7}) is False

    asyncio.run(scenario())


def test_garbage_ends_the_connection_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as there:
            async with there.peer() as peer:
                await peer.receive()
                peer.writer.write(b"[1]\n")
                assert await peer.receive() is None
            async with there.peer() as again:
                assert await again.receive() == {"type": "answer", "id": 0}

    asyncio.run(scenario())
