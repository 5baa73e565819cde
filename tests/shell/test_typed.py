"""What a person types inside the agent, and an agent that leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, hangs, says
from tests.support.virtual import VirtualClock


def test_a_line_typed_inside_the_agent_is_a_command_like_any_other(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        typed = agent.newest.events.command
        assert (await typed("pause")).message == "there is no loop in this session; start one with `loopsup start`"
        answer = await typed("start --every 10m  look  around ")
        assert (answer.done, world.loop.objective) == (True, "look  around ")
        await asyncio.sleep(1)
        answer = await typed("pause")
        assert answer.status is not None
        assert (answer.done, answer.status["loop"]["pauseReason"]) == (True, "user")
        answer = await typed("update --max-iterations 7")
        assert (answer.done, world.loop.policy.max_iterations) == (True, 7)
        answer = await typed("start --every 10m x")
        assert (answer.done, world.loop.objective) == (False, "look  around ")
        answer = await typed("dance")
        assert (answer.done, answer.message[:23]) == (False, "there is no /loop 'danc")
        assert (await typed("stop")).done
        assert world.place == ("stopped", None)

    night(tmp_path, story, agent)


def test_an_agent_that_leaves_closes_the_session_and_keeps_the_loop(tmp_path: Path) -> None:
    agent = FakeAdapter(default=hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert world.place == ("running", None)
        agent.newest.events.left("Pi was quit")
        await world.over()
        assert world.place == ("paused", "session_closed")
        assert world.ended == "agent_left"
        assert "the session closes: Pi was quit" in world.notices()

    night(tmp_path, story, agent)


def test_an_agent_that_was_let_go_gives_no_commands(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        events = agent.newest.events
        await world.supervisor.host.slot.empty()
        assert not (await events.command("start --every 10m x")).done
        events.left("late")
        assert world.supervisor.loop is None
        assert not world.supervisor.closing

    night(tmp_path, story, agent)
