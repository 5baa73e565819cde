"""What a reload and a shutdown of an enabled session leave behind, and when a reload is refused (D-45, X-25)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.limits import DAY, MINUTE
from loopsup.core.model import Waiting
from loopsup.store import heartbeat
from loopsup.store.journal import read_tail
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, refuses, says, talks
from tests.support.script import policy_of
from tests.support.virtual import VirtualClock


async def begin(world: World) -> None:
    world.start(policy_of("1h"))
    response = await world.ask("heartbeat", action="start", everyMs=10 * MINUTE, forMs=DAY, ask=False)
    assert response.error is None
    await asyncio.sleep(60)


def left(world: World) -> tuple[bool, bool]:
    """Whether the loop still waits, and the heartbeat still beats, in what is on the disk."""
    loop, beat = read_tail(world.folder).loop, heartbeat.load(world.folder)
    return loop is not None and isinstance(loop.phase, Waiting), beat is not None and beat.due is not None


@pytest.mark.parametrize(
    ("reason", "enabled", "stays"),
    [
        ("reload", False, True),
        ("reload", True, True),
        ("signal", True, True),
        ("signal", False, False),
        ("command", True, False),
        ("idle", True, False),
    ],
)
def test_what_stays_as_it_is(tmp_path: Path, reason: str, enabled: bool, stays: bool) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.identity = replace(world.supervisor.identity, enabled=enabled)
        await begin(world)
        await world.close(reason)

    world = night(tmp_path, story, FakeAdapter(default=says("continue")))
    assert left(world) == (stays, stays)


def test_a_shutdown_in_an_iteration_pauses_also_an_enabled_one(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.identity = replace(world.supervisor.identity, enabled=True)
        world.start(policy_of("1h"))
        await asyncio.sleep(60)
        await world.close("signal")
        assert world.place == ("paused", "session_closed")

    night(tmp_path, story, FakeAdapter(default=says("continue", lasts_s=600)))


def test_case_221_no_reload_in_a_turn(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        assert world.supervisor.at_rest
        waiter = world.say("hello")
        assert not world.supervisor.at_rest, "the message is on its way"
        await asyncio.sleep(60)
        assert not world.supervisor.at_rest
        await waiter
        await asyncio.sleep(1)
        assert world.supervisor.at_rest
        world.start(policy_of("1h"))
        await asyncio.sleep(60)
        assert not world.supervisor.at_rest

    night(tmp_path, story, FakeAdapter(default=talks(lasts_s=600)))


def test_case_42_no_reload_between_an_omission_and_the_end_of_its_reminder(tmp_path: Path) -> None:
    """L-115: the right to a reminder cannot come back by it; also while the reminder waits to be taken."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("1h"))
        await asyncio.sleep(0.5)
        assert (world.place, world.loop.protocol_retry_count) == (("running", None), 1)
        assert not world.supervisor.host.working, "the agent has refused it, and is asked again in a second"
        assert not world.supervisor.at_rest
        await asyncio.sleep(30)
        assert world.supervisor.host.working
        assert not world.supervisor.at_rest
        await world.until(lambda: world.place == ("paused", "protocol_error"))
        assert (world.loop.protocol_retry_count, world.loop.prompts_sent) == (1, 2)
        await asyncio.sleep(1)
        assert world.supervisor.at_rest

    agent = FakeAdapter(default=says("continue"))
    agent.acts.extend([talks(), refuses(), talks(lasts_s=60)])
    world = night(tmp_path, story, agent)
    assert len(world.events("loop.attention")) == 1
