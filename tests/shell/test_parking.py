"""`--park`: the agent is closed between far-apart wakes, and never where that could lose something."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopsup.errors import AgentUnableError
from loopsup.ports import Question
from loopsup.shell import leftover
from loopsup.store.identity import load_identity
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, says, talks, without
from tests.support.script import ms
from tests.support.virtual import VirtualClock

HOUR_S = 3600
SEEN_S = 60.0  # real time, for a very busy machine
BUSY = "the agent is not closed until the next wake: it has work in the background (process {})"
CLOSED = "the agent is closed until the next wake (--park)"


@contextlib.contextmanager
def in_the_background(world: World) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the session's mark, until the end. The kernel shows an environment a moment after the start."""
    mark = world.supervisor.identity.id
    with subprocess.Popen(["sleep", "600"], env={**os.environ, leftover.MARK: mark}) as process:
        try:
            give_up = time.monotonic() + SEEN_S
            while process.pid not in {each.pid for each in leftover.marked(mark)}:
                assert time.monotonic() < give_up
            yield process
        finally:
            process.kill()


async def begin(world: World, every: str = "1h", *, park: bool = True) -> None:
    """A loop whose first iteration has settled."""
    await world.supervisor.host.start()
    more = {"park": True} if park else {}
    response = await world.ask("start", objective="look", policy={"rhythm": ms(every)}, **more)
    assert response.error is None
    await world.until(lambda: world.place == ("waiting", None))


def test_it_is_closed_while_it_waits_and_resumed_for_the_wake(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world)
        assert load_identity(world.folder).park
        first = world.adapter.newest
        await asyncio.sleep(4)
        assert (first.closed, world.supervisor.status()["session"]["parked"]) == (0, False)
        await asyncio.sleep(2)
        assert (first.closed, world.supervisor.status()["session"]["parked"]) == (1, True)
        await asyncio.sleep(HOUR_S - 10)
        assert len(world.adapter.agents) == 1
        await asyncio.sleep(10)
        assert len(world.adapter.agents) == 2
        assert world.loop.iteration_count == 2
        await asyncio.sleep(10)
        assert world.adapter.newest.closed == 1
        assert world.notices() == [CLOSED, CLOSED]
        assert CLOSED in world.logged

    night(tmp_path, story, FakeAdapter(default=says("continue")))


@pytest.mark.parametrize(("every", "park"), [("9m", True), ("1h", False)], ids=["soon", "not asked for"])
def test_it_stays(tmp_path: Path, every: str, park: bool) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, every, park=park)
        await asyncio.sleep(2 * HOUR_S)
        assert len(world.adapter.agents) == 1
        assert world.adapter.newest.closed == 0
        assert world.loop.iteration_count > 1

    night(tmp_path, story, FakeAdapter(default=says("continue")))


@pytest.mark.parametrize("every", ["10m", "11m"])
def test_ten_minutes_are_far_enough_apart(tmp_path: Path, every: str) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, every)
        await asyncio.sleep(10)
        assert world.supervisor.parking.parked

    night(tmp_path, story, FakeAdapter(default=says("continue")))


def test_a_message_brings_it_back_and_it_is_closed_again(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world)
        await asyncio.sleep(10)
        assert world.supervisor.parking.parked
        assert await world.say("are you there") == "hello"
        assert not world.supervisor.parking.parked
        await asyncio.sleep(10)
        assert world.supervisor.parking.parked
        assert [agent.closed for agent in world.adapter.agents] == [1, 1]
        assert world.loop.iteration_count == 1

    adapter = FakeAdapter(default=talks())
    adapter.acts.append(says("continue"))
    night(tmp_path, story, adapter)


def test_a_question_keeps_it(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world)
        world.adapter.newest.events.ask(Question("q", "dialog", "", "which one?"))
        await asyncio.sleep(60)
        assert world.adapter.newest.closed == 0

    night(tmp_path, story, FakeAdapter(default=says("continue")))


def test_work_in_the_background_keeps_it_and_is_told_once(tmp_path: Path) -> None:
    """What was there when the agent came up is its own; what came later may be work."""

    async def story(world: World, clock: VirtualClock) -> None:
        with in_the_background(world):
            await begin(world)
            with in_the_background(world) as work:
                await asyncio.sleep(200)
                assert world.adapter.newest.closed == 0
                assert world.notices() == [BUSY.format(work.pid)]
            await asyncio.sleep(61)
            assert world.notices()[1:] == [CLOSED]

    night(tmp_path, story, FakeAdapter(default=says("continue")))


def test_work_of_before_the_loop_keeps_it_too(tmp_path: Path) -> None:
    """The session lives already: a message or the loop before may have started something."""

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        with in_the_background(world) as work:
            response = await world.ask("start", objective="look", policy={"rhythm": ms("1h")}, park=True)
            assert response.error is None
            await world.until(lambda: world.place == ("waiting", None))
            await asyncio.sleep(200)
            assert world.adapter.newest.closed == 0
            assert world.notices() == [BUSY.format(work.pid)]
        await asyncio.sleep(61)
        assert world.notices()[1:] == [CLOSED]

    night(tmp_path, story, FakeAdapter(default=says("continue")))


def test_an_agent_that_cannot_resume_is_refused(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        response = await world.ask("start", objective="x", policy={"rhythm": HOUR_S * 1000}, park=True)
        assert isinstance(response.error, AgentUnableError)
        assert world.supervisor.loop is None

    night(tmp_path, story, FakeAdapter(default=says("continue"), capabilities=without(resume=False)))
