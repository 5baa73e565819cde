"""Nights and days of a session on a virtual clock: how often it wakes, and what it wrote."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from loopsup.core.events import Resume, Stop, Update
from loopsup.core.limits import DAY, HOUR, MINUTE
from tests.shell.world import LONG_S, World, night
from tests.support.fake_agent import FakeAdapter, FakeAgent, refuses, says, talks
from tests.support.script import T0, policy_of
from tests.support.virtual import VirtualClock


def _offsets(world: World) -> list[int]:
    """Minutes after T0 of each hand-over that the journal knows."""
    sent = [r for r in world.records() if r.loop is not None and r.loop.flight is not None]
    first = {r.loop.iteration_count: r.now.wall for r in reversed(sent) if r.loop is not None}
    return [(first[n] - T0.wall) // MINUTE for n in sorted(first)]


@pytest.mark.slow
def test_every_ten_minutes_for_a_day(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m", for_="24h", max_iterations=1000))
        await asyncio.sleep(24 * 3600 + 1)
        assert world.place == ("paused", "duration_limit")
        assert world.loop.iteration_count == 144
        assert world.loop.llm_calls == 144
        assert world.loop.prompts_sent == 144
        assert world.loop.last_attention is not None
        assert world.loop.last_attention.ended_at == T0.wall + DAY

    world = night(tmp_path, story, agent)
    assert _offsets(world) == [10 * n for n in range(144)]
    kinds = Counter(world.kinds())
    assert kinds["assistant.turn_start"] == kinds["assistant.turn_end"] == kinds["user.message"] == 144
    assert kinds["loop.attention"] == 1
    assert len(agent.agents) == 1


def test_the_supervisor_wakes_only_for_its_one_timer(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))
    looks = [0]

    async def story(world: World, clock: VirtualClock) -> None:
        def count() -> None:
            looks[0] += 1

        world.start(policy_of("1h", for_="366d", max_iterations=1000))
        await asyncio.sleep(0.001)
        world.supervisor.maintain = count
        await asyncio.sleep(10 * 3600)
        assert world.loop.iteration_count == 11

    night(tmp_path, story, agent)
    assert looks[0] <= 10 * 6  # a wake, what the iteration reports, and no polling in between


@pytest.mark.slow
@pytest.mark.parametrize("recheck_s", [1.0, None])
def test_case_87_suspended_for_eight_hours(tmp_path: Path, recheck_s: float | None) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(3600)
        world.supervisor.recheck_s = LONG_S if recheck_s is None else recheck_s
        await asyncio.sleep(1)
        before = world.loop.iteration_count
        clock.move_wall(8 * HOUR)
        if recheck_s is None:
            world.supervisor.touch()
        await asyncio.sleep(2)
        assert world.loop.iteration_count == before + 1
        await asyncio.sleep(10 * 60)
        assert world.loop.iteration_count == before + 2

    night(tmp_path, story, agent)


def test_case_89_wall_clock_set_back(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(5 * 60)
        clock.move_wall(-2 * HOUR)
        status = world.supervisor.status()["loop"]
        assert status["calendarElapsedMs"] == 0
        assert status["deadlineAt"] == "2026-10-11T00:00:00.000Z"
        await asyncio.sleep(5 * 60 - 1)
        assert world.loop.iteration_count == 1
        await asyncio.sleep(2)
        assert world.loop.iteration_count == 2
        assert world.loop.deadline_at == T0.wall + DAY

    night(tmp_path, story, agent, recheck_s=1.0)


def test_case_90_wall_clock_set_forward_and_back(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(5 * 60)
        clock.move_wall(30 * HOUR)
        await asyncio.sleep(1.1)
        assert world.place == ("paused", "duration_limit")
        assert world.loop.last_attention is not None
        assert world.loop.last_attention.ended_at == T0.wall + DAY
        clock.move_wall(-30 * HOUR)
        assert not world.command(Resume(idle=True)).ok
        await asyncio.sleep(3600)
        assert world.place == ("paused", "duration_limit")
        assert len(world.events("loop.attention")) == 1
        assert world.command(Update(for_ms=2 * DAY)).ok
        assert world.command(Resume(idle=world.supervisor.host.idle)).ok
        await asyncio.sleep(1)
        assert world.loop.iteration_count == 2

    night(tmp_path, story, agent, recheck_s=1.0)


def test_case_93_a_delay_of_forty_days(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("40d", for_="60d", max_delay="60d"))
        await asyncio.sleep(40 * 24 * 3600 - 1)
        assert world.loop.iteration_count == 1
        await asyncio.sleep(2)
        assert world.loop.iteration_count == 2

    world = night(tmp_path, story, agent)
    assert _offsets(world) == [0, 40 * 24 * 60]


@pytest.mark.slow
def test_case_174_twelve_hours_with_nobody_there(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m", max_iterations=100))
        await asyncio.sleep(12 * 3600 + 1)
        assert world.place == ("waiting", None)
        assert world.loop.iteration_count == 73
        follower = world.supervisor.bus.subscribe(None)
        await asyncio.sleep(60)
        assert world.loop.iteration_count == 73
        world.supervisor.bus.unsubscribe(follower)

    night(tmp_path, story, agent, hold_open=False)


@pytest.mark.slow
def test_case_174_the_default_budget_then_the_session_goes(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await world.over()
        assert world.ended == "idle"
        assert world.place == ("paused", "iteration_limit")
        assert world.loop.iteration_count == 50
        assert world.now.wall - T0.wall == 8 * HOUR + 10 * MINUTE
        assert agent.newest.closed == 1

    night(tmp_path, story, agent, hold_open=False)


def test_stopped_at_night(tmp_path: Path) -> None:
    """Nothing is armed behind a stop, and the session, which nobody has followed for long, goes at once (D-32)."""
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(15 * 60)
        world.command(Stop())
        await world.over()
        assert world.now.wall - T0.wall == 15 * MINUTE
        assert world.loop.iteration_count == 2

    night(tmp_path, story, agent, hold_open=False)


def test_a_message_between_wakes_keeps_the_timer(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(7 * 60)
        agent.acts.append(talks("it is green"))
        assert await world.say("and?") == "it is green"
        await asyncio.sleep(3 * 60 - 1)
        assert world.loop.iteration_count == 1
        await asyncio.sleep(2)
        assert world.loop.iteration_count == 2
        assert world.loop.llm_calls == 2

    night(tmp_path, story, agent)


def test_a_message_waits_for_an_agent_that_is_coming_up(tmp_path: Path) -> None:
    """Nothing spins meanwhile: the supervisor sleeps until the agent is there."""
    agent = FakeAdapter(default=says("continue"))

    async def slowly(coming: FakeAgent) -> None:
        await asyncio.sleep(5)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"), after_ms=HOUR)
        agent.starts.append(slowly)
        agent.acts.extend([refuses("a moment", busy=True), talks("it is green")])
        assert await world.say("and?") == "it is green"

    night(tmp_path, story, agent)
