"""A turn four times the interval, ten messages in it, fifty things that end in the background after it (T6)."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, says, talks
from tests.support.script import policy_of
from tests.support.virtual import VirtualClock

MINUTE = 60_000
MESSAGES = [f"message {number}" for number in range(10)]


def test_a_long_turn_and_a_storm_neither_pile_up_wakes_nor_shorten_the_interval(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        world.start(policy_of("10m"))
        waiters = []
        for text in MESSAGES:
            await asyncio.sleep(60)
            waiters.append(world.say(text))
        await world.until(lambda: world.place == ("waiting", None))
        settled = world.now.mono
        assert await asyncio.gather(*waiters) == ["hello"] * len(MESSAGES)
        assert world.now.mono - settled < MINUTE  # at once, not at the next wake
        agent = world.adapter.newest
        for _ in range(50):
            agent.events.busy()
            agent.begin_turn()
            await asyncio.sleep(0.1)
            agent.end_turn()
            agent.settle()
            await asyncio.sleep(1)
        assert (world.loop.iteration_count, world.place) == (1, ("waiting", None))
        await world.until(lambda: world.loop.iteration_count == 2)
        assert world.now.mono - settled == 10 * MINUTE
        await asyncio.sleep(9 * 60)
        assert world.loop.iteration_count == 2

    adapter = FakeAdapter(acts=deque([says("continue", lasts_s=40 * 60), *[talks()] * len(MESSAGES)]))
    adapter.default = says("continue")
    world = night(tmp_path, story, adapter, silence_ms=60 * MINUTE)
    assert world.loop.iteration_count == 2
    texts = [prompt.text for prompt in adapter.prompts]
    assert texts[1:-1] == MESSAGES
