"""A machine that slept, on a virtual clock: what the supervisor does, and what it tells."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.limits import HOUR
from loopsup.core.misfire import Misfire, Once, Skip, Within
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, says
from tests.support.script import policy_of
from tests.support.virtual import VirtualClock

LATE = 8 * HOUR - 570_000


@pytest.mark.parametrize(
    ("misfire", "done"),
    [(Once(), "woken"), (Skip(), "skipped"), (Within(HOUR), "skipped"), (Within(9 * HOUR), "woken")],
)
def test_one_event_for_one_gap(tmp_path: Path, misfire: Misfire, done: str) -> None:
    """Case 87 with every policy: due at +1h10m, asleep from half a minute after +1h, for 8h."""
    agent = FakeAdapter(default=says("continue"))
    told = {
        "dueAt": "2026-10-10T01:10:00.000Z",
        "missedByMs": LATE + 1000,
        "count": 48,
        "why": "asleep",
        "done": done,
    }

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(replace(policy_of("10m"), misfire=misfire))
        await asyncio.sleep(3630)
        before = world.loop.iteration_count
        clock.move_wall(8 * HOUR)
        world.supervisor.touch()
        await asyncio.sleep(2)
        assert world.loop.iteration_count == before + (done == "woken")
        missed = world.supervisor.status()["loop"]["lastMissed"]
        assert {**missed, "missedByMs": LATE + 1000} == told
        assert 0 <= missed["missedByMs"] - LATE <= 2000
        await asyncio.sleep(10 * 60)
        assert world.loop.iteration_count == before + 1 + (done == "woken")

    world = night(tmp_path, story, agent)
    assert world.kinds().count("loop.misfire") == 1
