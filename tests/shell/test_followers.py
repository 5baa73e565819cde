"""Followers on the real socket: one that never reads is cut off, and many that come and go leave nothing."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from loopsup.shell import handlers
from loopsup.shell.bus import FOLLOWER_BYTES, FOLLOWER_QUEUE, Bus
from loopsup.store.eventlog import EventWriter
from loopsup.wire.control import MAX_LINE
from tests.shell.test_control import Client, Served, live
from tests.support.fake_agent import FakeAdapter
from tests.support.virtual import VirtualClock

MANY = 200  # real ones; a thousand are in test_vacancy, on a virtual clock


async def settled(served: Served) -> tuple[int, int]:
    """Open descriptors and tasks, once nobody is connected."""
    await asyncio.sleep(0.1)  # a connection that is over is closed in the loop's next turns
    while served.server._connections:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.1)
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


async def until(served: Served, condition: object) -> None:
    async with served.world.supervisor.changed:
        await served.world.supervisor.changed.wait_for(condition)  # type: ignore[arg-type]


def test_a_queue_is_bounded_by_its_size_too(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    bus = Bus(VirtualClock(), print)
    bus.attach(EventWriter.open(folder))
    slow = bus.subscribe(None)
    cut = []
    slow.on_drop = lambda: cut.append(1)
    huge = "x" * (FOLLOWER_BYTES // 20)
    for _ in range(30):
        bus.publish("assistant.message_delta", {"text": huge})
    bus.close()
    assert slow.dropped
    assert cut == [1]
    assert bus.followers == 0
    assert slow._lines.qsize() < FOLLOWER_QUEUE
    assert FOLLOWER_BYTES > MAX_LINE


@pytest.mark.slow
def test_a_dropped_follower_that_never_reads_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "DROP_GRACE_S", 0.2)

    async def story(served: Served) -> None:
        world = served.world
        stuck = await served.client("follow")
        await until(served, lambda: world.supervisor.bus.followers == 1)
        stuck.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for n in range(FOLLOWER_QUEUE + 2000):
            world.supervisor.publish("assistant.message_delta", {"text": "x" * 200})
            if n % 500 == 0:
                await served.ask("ping")
        while served.server._connections:  # the connection and its task are gone, though it never read a byte
            await asyncio.sleep(0.05)
        assert (await served.ask("ping"))["ok"] is True
        stuck.writer.transport.abort()

    live(tmp_path, story, FakeAdapter())


@pytest.mark.slow
def test_case_190_many_connections_leave_nothing(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        assert (await served.ask("ping"))["ok"] is True
        gc.collect()  # what an earlier test left open must not be closed within this one
        before = await settled(served)
        for number in range(MANY):
            client = await Client.to(served.path)
            if number % 3:
                await client.send({"v": 1, "verb": "follow" if number % 2 else "wait", "args": {}})
            await client.leave()
        assert served.world.supervisor.bus.followers <= MANY
        while await settled(served) != before:  # those that were never accepted come last
            await asyncio.sleep(0.05)
        assert served.world.supervisor.bus.followers == 0
        assert (await served.ask("ping"))["ok"] is True

    live(tmp_path, story, FakeAdapter())
