"""Conversations with branches, and faults of our own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from loopsup.ports import Marker
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, hangs, says, without
from tests.support.virtual import VirtualClock


def _agent() -> FakeAdapter:
    return FakeAdapter(default=says("continue"), capabilities=without(branches=True))


def test_each_record_is_marked_and_a_branch_brings_its_state_back(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        world.start()
        await asyncio.sleep(700)
        assert [marker.seq for marker in agent.newest.marks] == [record.seq for record in world.records()]
        first_wait = next(r for r in world.records() if r.loop is not None and r.loop.state == "waiting")
        assert first_wait.loop is not None
        agent.newest.events.branch(Marker(first_wait.loop.id, first_wait.seq))
        assert world.place == ("paused", "fork")
        assert world.loop.iteration_count == 1
        await asyncio.sleep(3600)
        assert len(agent.prompts) == 2
        agent.newest.events.branch(None)
        assert world.supervisor.loop is None

    night(tmp_path, story, agent)


def test_a_fork_pauses_and_a_foreign_marker_changes_nothing(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        await agent.newest.events.forking("clone")
        assert world.place == ("paused", "fork")
        agent.newest.events.branch(Marker("another", 3))
        assert world.place == ("paused", "fork")
        assert len(world.notices()) == 2

    night(tmp_path, story, agent)


def test_a_journal_that_cannot_be_read_for_a_branch_is_told(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        journal, before = world.folder / "journal.jsonl", world.loop
        journal.rename(world.folder / "aside")
        os.symlink("/etc/passwd", journal)
        agent.newest.events.branch(Marker(before.id, 1))
        assert world.loop == before
        assert "journal.jsonl" in world.notices()[-1]
        (world.folder / "aside").rename(journal)

    night(tmp_path, story, agent)


def test_a_fault_in_the_main_loop_closes_in_good_order(tmp_path: Path) -> None:
    agent = _agent()
    agent.acts.append(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        def broken() -> None:
            raise KeyError("a bug")

        world.start()
        await asyncio.sleep(1)
        world.supervisor.maintain = broken
        world.supervisor.touch()
        await world.over()
        assert world.ended == "internal_error"
        assert world.place == ("paused", "session_closed")
        assert agent.newest.closed == 1
        assert world.logged[-1] == "internal error: KeyError: 'a bug'"

    night(tmp_path, story, agent)


def test_a_fault_in_a_task_is_told_and_the_session_goes_on(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        async def broken() -> None:
            raise KeyError("a bug")

        world.supervisor.spawn(broken())
        world.start()
        await asyncio.sleep(1)
        assert world.place == ("waiting", None)
        assert world.notices() == ["internal error: KeyError (supervisor.log)"]

    night(tmp_path, story, agent)
