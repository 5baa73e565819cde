"""A journal that cannot be written: nothing changes, nothing is lost, and it is tried again (D-42)."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path

import pytest

from loopsup.core.effects import Announce
from loopsup.core.events import Pause, Resume, Start, Stop, Ticked, Update
from loopsup.core.limits import DAY, HOUR
from loopsup.core.model import Moment, Paused, PauseReason
from loopsup.errors import StorageError
from loopsup.ports import AgentUnableError, Doing, Prompt
from loopsup.shell.keeper import Change, Keeper
from loopsup.store.journal import JournalAppender
from tests.shell.world import FullDisk, World, night, replay
from tests.support.fake_agent import FakeAdapter, FakeAgent, does, hangs, says, start_fails, talks
from tests.support.script import T0, call, policy_of
from tests.support.virtual import VirtualClock


def test_commands_are_refused_and_change_nothing(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        before, lines = world.loop, len(world.records())
        world.journal.full = True
        for verb, args in (("pause", {}), ("stop", {}), ("update", {"policy": {"rhythm": 120_000}})):
            response = await world.ask(verb, **args)
            assert response.error is not None
            assert response.error.kind == "storage"
            assert "No space left on device" in response.error.message
        assert world.loop == before
        assert len(world.records()) == lines
        assert "No space left" in world.supervisor.status()["session"]["problem"]
        world.journal.full = False
        assert (await world.ask("pause")).error is None
        assert world.supervisor.status()["session"]["problem"] is None

    night(tmp_path, story, agent)


def test_no_loop_starts_on_a_full_disk(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.journal.full = True
        with pytest.raises(StorageError):
            world.start()
        await asyncio.sleep(3600)
        assert world.supervisor.loop is None
        assert agent.agents == []

    night(tmp_path, story, agent)


def test_a_wake_on_a_full_disk_hands_nothing_over_and_comes_later(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(300)
        world.journal.full = True
        await asyncio.sleep(600)
        assert world.place == ("waiting", None)
        assert len(agent.prompts) == 1
        assert world.journal.failed == 10  # at its due and every 30 s after it, not in a circle
        assert world.supervisor.status()["loop"]["late"] is True
        world.journal.full = False
        await asyncio.sleep(31)
        assert len(agent.prompts) == 2
        assert world.place == ("waiting", None)
        assert world.supervisor.status()["session"]["problem"] is None

    night(tmp_path, story, agent)


def test_the_deadline_on_a_full_disk_is_told_once_it_is_written(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(60)
        world.command(Pause())
        world.journal.full = True
        await asyncio.sleep(24 * 3600)
        assert world.place == ("paused", "user")
        assert world.events("loop.attention") == []
        world.journal.full = False
        await asyncio.sleep(31)
        assert world.place == ("paused", "duration_limit")
        assert world.loop.last_attention is not None
        assert world.loop.last_attention.ended_at == T0.wall + DAY
        assert len(world.events("loop.attention")) == 1

    night(tmp_path, story, agent)


def test_a_decision_is_not_accepted_until_it_can_be_recorded(tmp_path: Path) -> None:
    async def insists(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        while not (await agent.decide(prompt.stamp, call("complete"))).accepted:
            await asyncio.sleep(5)
        agent.end_turn()
        agent.settle()

    agent = FakeAdapter(default=does(insists))

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        world.start()
        world.journal.full = True
        await asyncio.sleep(42)
        world.journal.full = False
        await asyncio.sleep(60)
        assert world.place == ("completed", None)
        refused = [verdict for verdict in agent.newest.verdicts if not verdict.accepted]
        assert refused
        assert all("was not recorded; call it again" in verdict.message for verdict in refused)

    night(tmp_path, story, agent)


def test_a_settlement_on_a_full_disk_is_kept(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))
    agent.acts.append(hangs(Doing.TOOL, verb="continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(10)
        world.journal.full = True
        agent.newest.end_turn()
        agent.newest.settle()
        await asyncio.sleep(100)
        assert world.place == ("running", None)
        with pytest.raises(StorageError):
            world.command(Stop())
        assert len(agent.prompts) == 1
        world.journal.full = False
        await asyncio.sleep(30)
        assert world.place == ("waiting", None)
        assert world.loop.llm_calls == 1
        await asyncio.sleep(600)
        assert world.loop.iteration_count == 2

    night(tmp_path, story, agent)


def test_facts_keep_their_order(tmp_path: Path) -> None:
    """The settlement of one prompt and the failed start for the next: the second waits behind the first."""
    agent = FakeAdapter(default=talks())
    agent.acts.append(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(10)
        world.journal.full = True
        agent.newest.die("exit status 3")
        await asyncio.sleep(1)
        world.supervisor.host.desk.start_failed("not there")
        world.supervisor.host.desk.forking("fork")
        assert world.place == ("running", None)
        world.journal.full = False
        await asyncio.sleep(30)
        assert world.place == ("paused", "protocol_error")
        causes = [type(record.event).__name__ for record in world.records()]
        assert causes[-1] == "AgentLost"
        assert world.command(Resume(idle=False)).ok

    night(tmp_path, story, agent)


def test_full_for_good(tmp_path: Path) -> None:
    """The session can be closed; what it could not write is for the next open to see."""
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        world.journal.full = True
        await asyncio.sleep(3600)
        await world.close()
        assert world.records()[-1].loop == world.loop
        assert world.place == ("waiting", None)
        assert agent.newest.closed == 1

    night(tmp_path, story, agent)


def test_start_failures_on_a_full_disk(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))
    agent.starts.append(start_fails(AgentUnableError("not there")))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        world.journal.full = True
        await asyncio.sleep(10)
        assert world.place == ("queued", None)
        world.journal.full = False
        await asyncio.sleep(60)
        assert world.loop.iteration_count == 1

    night(tmp_path, story, agent)


# ---- the keeper alone -------------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.at = T0

    def now(self) -> Moment:
        return self.at


def _keeper(folder: Path) -> tuple[Keeper, FullDisk, _Clock, list[Change]]:
    folder.mkdir(mode=0o700)
    disk, clock, changes = FullDisk(JournalAppender.open(folder)), _Clock(), []
    keeper = Keeper(disk, None, clock, changes.append)  # type: ignore[arg-type]
    return keeper, disk, clock, changes


def test_a_deadline_recorded_before_a_command_that_was_not(tmp_path: Path) -> None:
    """Two records in one step, room for one: what the first asks for is done all the same."""
    keeper, disk, clock, changes = _keeper(tmp_path / "s")
    keeper.apply(Start("l", "look", policy_of("10m"), None, idle=False))
    clock.at = clock.at.plus(25 * HOUR)
    disk.full, disk.allow = True, 1
    with pytest.raises(StorageError):
        keeper.apply(Stop())
    assert keeper.loop is not None
    assert keeper.loop.phase == Paused(PauseReason.DURATION_LIMIT)
    assert [[type(effect) for effect in change.effects] for change in changes] == [[], [Announce]]


def test_a_refused_command_writes_nothing(tmp_path: Path) -> None:
    keeper, disk, _, changes = _keeper(tmp_path / "s")
    disk.full = True
    assert not keeper.apply(Stop()).ok
    assert not keeper.apply(Update()).ok
    keeper.fact(Ticked(idle=True))
    assert (changes, keeper.problem, keeper.retry_at) == ([], None, None)


def test_a_retry_that_fails_again_waits_again(tmp_path: Path) -> None:
    keeper, disk, clock, _ = _keeper(tmp_path / "s")
    keeper.apply(Start("l", "look", policy_of("10m"), None, idle=False))
    disk.full = True
    with pytest.raises(StorageError):
        keeper.apply(Pause())
    for n in (1, 2, 3):
        assert keeper.retry_at is not None
        clock.at = Moment(clock.at.wall, keeper.retry_at)
        keeper.fact(Ticked(idle=True))
        keeper.retry(clock.at)
        keeper.fact(Ticked(idle=True))
        assert disk.failed == 1 + n
    disk.full = False
    assert keeper.retry_at is not None
    clock.at = Moment(clock.at.wall, keeper.retry_at)
    keeper.retry(clock.at)
    keeper.fact(Ticked(idle=True))
    assert (keeper.problem, keeper.retry_at) == (None, None)


def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
    """A limit on the size of files: writes are cut short as on a full disk, and the journal stays whole."""
    agent = FakeAdapter(default=says("continue"))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m", max_iterations=1000))
        await asyncio.sleep(1)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (world.folder / "journal.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limit[1]))
        try:
            await asyncio.sleep(3600)
            assert world.loop.iteration_count == 1
            assert (world.folder / "journal.jsonl").stat().st_size == size
            assert "the disk is full" in world.supervisor.status()["session"]["problem"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, before)
        await asyncio.sleep(31)
        assert world.loop.iteration_count == 2
        replay(world.records())

    night(tmp_path, story, agent)


def test_who_asks_does_not_wait_for_the_next_try(tmp_path: Path) -> None:
    """What waits is written first, in its order, as soon as somebody asks and there is space again."""
    agent = FakeAdapter()
    agent.acts.append(hangs(Doing.TOOL, verb="continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(5)
        world.journal.full = True
        agent.newest.end_turn()
        agent.newest.settle()
        await asyncio.sleep(1)
        assert (await world.ask("pause")).error is not None
        world.journal.full = False
        assert (await world.ask("pause")).error is None
        assert world.place == ("paused", "user")
        assert world.loop.llm_calls == 1

    world = night(tmp_path, story, agent)
    assert [type(record.event).__name__ for record in world.records()][-2:] == ["IterationSettled", "Pause"]
