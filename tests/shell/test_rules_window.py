"""What may happen between the abort of a stream rule and its retry, on a virtual clock: see also `test_rules.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.core.events import Resume
from loopsup.core.limits import SECOND
from loopsup.core.reaper import ORPHAN_GRACE_MS
from loopsup.ports import AbortReason, Conversation
from loopsup.shell.bus import FOLLOWER_BYTES
from tests.shell.test_rules import in_window, play, prompts, streams, until_triggered
from tests.shell.world import World
from tests.support.fake_agent import Act, never, raises, shrugs, talks
from tests.support.script import T0
from tests.support.virtual import VirtualClock

GRACE_S = ORPHAN_GRACE_MS / SECOND


def test_another_conversation_in_the_agent_voids_the_retry(tmp_path: Path) -> None:
    """Case 129: the session was replaced."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        world.adapter.newest.events.moved(Conversation("other", None, world.folder))
        await world.until(lambda: world.place == ("paused", "protocol_error"))
        await asyncio.sleep(1)
        assert not world.supervisor.host.working
        assert not world.supervisor.host.rules.pending

    world = play(tmp_path, [streams("foo.bar")], story)
    assert prompts(world) == [("loop", False)]
    assert world.adapter.newest.closed == 1


def test_case_221_a_grace_that_ends_inside_the_window_closes_nothing(tmp_path: Path) -> None:
    """X-25: nothing is in flight for 50 ms, no loop holds the session, and nobody follows."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.vacancy.hold_open = False
        await asyncio.sleep(GRACE_S - 0.02)
        answer = world.say("write something")
        await until_triggered(world)
        await asyncio.sleep(0.03)
        assert clock.now().mono - T0.mono > ORPHAN_GRACE_MS
        assert world.supervisor.host.rules.resting
        assert world.ended is None
        assert await answer == "hello"
        await world.over()
        assert world.ended == "idle"

    world = play(tmp_path, [streams("foo.bar"), talks()], story)
    assert prompts(world) == [("user", False), ("ttsr", False)]


@pytest.mark.parametrize("act", [raises(RuntimeError("boom")), shrugs(), never()], ids=["raises", "unknown", "never"])
def test_a_retry_that_breaks_the_agent_settles_the_run_and_nothing_else(tmp_path: Path, act: Act) -> None:
    """Case 131, T-28, A-10: whether it arrived nobody knows, so it is not sent again and the agent is ended."""
    lines: list[bytes] = []

    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.bus.subscribe(None).put = lambda line: lines.append(line or b"")  # type: ignore[method-assign]
        world.start()
        await world.until(lambda: world.place == ("paused", "protocol_error"))
        assert [agent.closed for agent in world.adapter.agents] == [1]
        assert world.command(Resume(world.supervisor.host.idle)).ok
        await world.until(lambda: world.loop.terminal)

    world = play(tmp_path, [streams("foo.bar"), act], story)
    assert prompts(world) == [("loop", False), ("ttsr", False), ("loop", False)]
    assert world.place == ("completed", None)
    assert sum(b'"type":"session.idle"' in line for line in lines) == 2
    assert world.events("ttsr_injection") == []


def test_who_listens_badly_holds_nothing_up(tmp_path: Path) -> None:
    """Case 130, T-17: one that never reads, and one that is dropped by this very event."""
    at: list[int] = []

    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.bus.subscribe(None)
        world.start()
        await asyncio.sleep(0.001)
        full = world.supervisor.bus.subscribe(None)
        full._bytes = FOLLOWER_BYTES
        await until_triggered(world)
        at.append(clock.now().mono)
        await asyncio.sleep(0.001)
        assert full.dropped
        assert world.adapter.newest.aborts == [AbortReason.TTSR]
        while len(world.adapter.prompts) < 2:
            await asyncio.sleep(0.001)
        at.append(clock.now().mono)
        await world.until(lambda: world.loop.terminal)

    play(tmp_path, [streams("foo", ".bar")], story)
    assert at[1] - at[0] in (50, 51)
