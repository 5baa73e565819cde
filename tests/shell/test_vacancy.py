"""Who leaves, who comes back, and when a session that nobody needs closes, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from loopsup.core.events import Pause, Stop
from loopsup.core.limits import HOUR, MINUTE, SECOND
from loopsup.core.model import AbortReason
from loopsup.core.reaper import IDLE_TTL_MS, MAINTENANCE_MS, QUIET_MS, SETTLE_MS, Reaping
from loopsup.core.watch import DEFAULT_SILENCE_MS
from loopsup.errors import ClosingError, RefusedError, SettlingError
from loopsup.ports import Doing
from loopsup.wire.control import Request
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, does, hangs, says, talks
from tests.support.script import policy_of
from tests.support.virtual import VirtualClock, run_virtual

GRACE_S = 20.0
Story = Callable[[World, VirtualClock], Coroutine[Any, Any, None]]


def lived(tmp_path: Path, agent: FakeAdapter, story: Story, reaping: Reaping | None = None) -> World:
    """`story` in a session that may close by itself."""
    return night(tmp_path, story, agent, hold_open=False, reaping=reaping)


async def ends_at(world: World, seconds: float, reason: str) -> None:
    """It closes by itself, at this time of the test and not earlier."""
    await world.over()
    assert world.ended == reason
    assert seconds <= elapsed(world) <= seconds + 1, elapsed(world)


def elapsed(world: World) -> float:
    return (world.now.mono - 5_000_000) / SECOND


# ---- the orphan reaper ----------------------------------------------------------------------------------


def test_case_173_nobody_comes_back(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        follower = world.supervisor.bus.subscribe(None)
        world.supervisor.touch()
        await asyncio.sleep(100)
        world.supervisor.bus.unsubscribe(follower)
        world.supervisor.touch()
        await asyncio.sleep(GRACE_S - 0.1)
        assert world.ended is None
        await ends_at(world, 100 + GRACE_S, "idle")

    lived(tmp_path, FakeAdapter(), story)


def test_case_173_somebody_comes_back_in_time(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await asyncio.sleep(GRACE_S - 0.1)
        follower = world.supervisor.bus.subscribe(None)
        world.supervisor.touch()
        await asyncio.sleep(1000)
        assert world.ended is None
        world.supervisor.bus.unsubscribe(follower)
        world.supervisor.touch()
        await ends_at(world, GRACE_S - 0.1 + 1000 + GRACE_S, "idle")

    lived(tmp_path, FakeAdapter(), story)


def test_case_187_only_the_last_one_who_leaves_counts(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        bus = world.supervisor.bus
        one, two = bus.subscribe(None), bus.subscribe(None)
        world.supervisor.touch()
        await asyncio.sleep(30)
        bus.unsubscribe(one)
        world.supervisor.touch()
        await asyncio.sleep(30)
        assert (world.ended, world.supervisor.vacancy.due()) == (None, None)
        bus.unsubscribe(two)
        world.supervisor.touch()
        await ends_at(world, 60 + GRACE_S, "idle")

    lived(tmp_path, FakeAdapter(), story)


def test_case_185_the_grace_is_awake_time(tmp_path: Path) -> None:
    """Asleep for an hour right after the last one left: what is left of the grace is granted."""

    async def story(world: World, clock: VirtualClock) -> None:
        await asyncio.sleep(5)
        clock.move_wall(HOUR)
        await asyncio.sleep(GRACE_S - 5 - 0.1)
        assert world.ended is None
        await ends_at(world, GRACE_S, "idle")

    lived(tmp_path, FakeAdapter(), story)


@pytest.mark.slow
@pytest.mark.parametrize("command", [Pause(), Stop()], ids=["pause", "stop"])
def test_an_active_loop_keeps_it_and_a_pause_releases_it_at_once(tmp_path: Path, command: Pause | Stop) -> None:
    """H-05, H-20, D-32."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(3 * 3600 + 5)
        assert world.place == ("waiting", None)
        assert world.loop.iteration_count == 19
        world.command(command)
        await ends_at(world, 3 * 3600 + 5, "idle")

    lived(tmp_path, FakeAdapter(default=says("continue")), story)


def test_a_pause_within_the_grace_waits_for_it(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(5)
        world.command(Pause())
        await ends_at(world, GRACE_S, "idle")

    world = lived(tmp_path, FakeAdapter(default=says("continue")), story)
    assert world.place == ("paused", "user"), "an earlier reason stays (L-109)"


def test_a_loop_at_its_limit_releases_it(tmp_path: Path) -> None:
    """H-19."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m", max_iterations=3))
        await ends_at(world, 20 * 60, "idle")
        assert world.place == ("paused", "iteration_limit")

    lived(tmp_path, FakeAdapter(default=says("continue")), story)


@pytest.mark.slow
def test_case_177_a_turn_in_execution_is_left_alone(tmp_path: Path) -> None:
    """Three hours with signs of life; once it has settled, the next look finds nobody."""

    async def busy(agent: Any, prompt: Any) -> None:
        agent.begin_turn()
        for _ in range(3 * 60):
            await asyncio.sleep(60)
            agent.events.emit("assistant.message_delta", {"text": "."})
        agent.end_turn()
        agent.settle()

    async def story(world: World, clock: VirtualClock) -> None:
        await world.ask("say", text="work")
        await asyncio.sleep(3 * 3600 - 1)
        assert world.ended is None
        await world.over()
        assert world.ended == "idle"
        assert 3 * 3600 <= elapsed(world) <= 3 * 3600 + GRACE_S + 1

    world = lived(tmp_path, FakeAdapter(default=does(busy)), story)
    assert world.adapter.newest.aborts == []


def test_case_178_work_the_agent_was_given_keeps_it_until_it_ends(tmp_path: Path) -> None:
    """H-13: a run of its own, without a prompt of ours and without a loop; its tool says nothing for three hours."""

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        mine = world.adapter.newest
        mine.events.busy()
        mine.begin_turn()
        mine.events.doing(Doing.TOOL)
        await asyncio.sleep(3 * 3600)
        assert world.ended is None
        mine.end_turn()
        mine.settle()
        await world.over()
        assert world.ended == "idle"
        assert elapsed(world) <= 3 * 3600 + GRACE_S + 1

    world = lived(tmp_path, FakeAdapter(), story)
    assert world.adapter.newest.aborts == []


def test_case_175_a_loop_that_ticks_drive_keeps_nobody_and_is_fired_by_them_alone(tmp_path: Path) -> None:
    """H-02, H-15: by a supervisor that is there for something else it is not fired, and does not hold it."""
    policy = {"rhythm": 10 * MINUTE}

    async def begins(world: World, clock: VirtualClock) -> None:
        assert (await world.ask("start", objective="look", policy=policy, driver="tick")).error is None
        await ends_at(world, 0, "tick")
        assert (world.place, world.loop.iteration_count) == (("waiting", None), 0)

    async def talks_only(world: World, clock: VirtualClock) -> None:
        follower = world.supervisor.bus.subscribe(None)
        world.supervisor.touch()
        await asyncio.sleep(3600)
        world.supervisor.bus.unsubscribe(follower)
        world.supervisor.touch()
        await ends_at(world, 3600 + GRACE_S, "idle")
        assert (world.place, world.loop.iteration_count) == (("waiting", None), 0)

    async def ticks(world: World, clock: VirtualClock) -> None:
        assert (await world.ask("tick")).message == "fired"
        await world.until(lambda: world.place == ("waiting", None))
        assert world.loop.iteration_count == 1
        await ends_at(world, GRACE_S, "idle")

    agent = FakeAdapter(default=says("continue"))
    for story, iterations in ((begins, 0), (talks_only, 0), (ticks, 1)):
        lived(tmp_path, agent, story)
        assert len(agent.prompts) == iterations


@pytest.mark.parametrize(
    ("journal", "place"),
    [
        (b"", None),
        (b"\0" * 512, None),
        (b'{"v":1,"seq":1,"loop":{"phase":{"type":"waiting"}}}\n', None),
        (b'{"v":9,"seq":1,"loop":{"id":"l","phase":"waiting"}}\n', ("paused", "unknown_version")),
    ],
    ids=["empty", "zeros", "damaged", "another version"],
)
def test_case_179_a_state_nobody_can_read_keeps_nobody(
    tmp_path: Path, journal: bytes, place: tuple[str, str] | None
) -> None:
    """H-21."""
    folder = tmp_path / "session"
    folder.mkdir(mode=0o700)
    (folder / "journal.jsonl").write_bytes(journal)
    (folder / "journal.jsonl").chmod(0o600)

    async def main(clock: VirtualClock) -> None:
        async with World(clock, folder, FakeAdapter(), hold_open=False) as world:
            assert (world.supervisor.loop is None) == (place is None)
            await ends_at(world, GRACE_S, "idle")
            assert place is None or world.place == place

    run_virtual(main)


def test_with_a_grace_of_zero_only_the_idle_time_counts(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await asyncio.sleep(3600)
        assert await world.say("hello") == "hi"
        await asyncio.sleep(IDLE_TTL_MS / SECOND - 100)
        assert world.ended is None
        await world.over()
        assert world.ended == "idle_ttl"
        assert 3600 + IDLE_TTL_MS / SECOND <= elapsed(world) <= 3600 + IDLE_TTL_MS / SECOND + 60

    lived(tmp_path, FakeAdapter(default=talks("hi")), story, Reaping(grace_ms=None))


def test_a_lost_timer_is_armed_again(tmp_path: Path) -> None:
    """H-27, H-28: by maintenance, within its 300 s."""

    async def story(world: World, clock: VirtualClock) -> None:
        await asyncio.sleep(1)
        world.supervisor.vacancy._check = None  # how it was lost is anybody's guess
        await world.over()
        assert world.ended == "idle"
        assert elapsed(world) <= MAINTENANCE_MS / SECOND + 60

    lived(tmp_path, FakeAdapter(), story)


# ---- the idle time ----------------------------------------------------------------------------------------


def test_a_follower_alone_does_not_keep_a_session_for_ever(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.bus.subscribe(None)
        await world.over()
        assert world.ended == "idle_ttl"
        assert IDLE_TTL_MS / SECOND <= elapsed(world) <= IDLE_TTL_MS / SECOND + 60

    lived(tmp_path, FakeAdapter(), story)


def test_case_183_a_loop_that_wakes_rarely_is_not_idle(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("23h", for_="48h"))
        await asyncio.sleep(22 * 3600)
        assert world.place == ("waiting", None)
        refused = (await world.ask("reap")).error
        assert isinstance(refused, RefusedError)
        assert "its loop is active" in refused.message
        await asyncio.sleep(3 * 3600)
        assert world.loop.iteration_count == 2

    lived(tmp_path, FakeAdapter(default=says("continue")), story)


# ---- the cap ----------------------------------------------------------------------------------------------


def test_the_one_asked_decides(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        follower = world.supervisor.bus.subscribe(None)
        assert str((await world.ask("reap")).error) == "the session stays: somebody follows it"
        world.supervisor.bus.unsubscribe(follower)
        waiter = world.say("work")
        assert str((await world.ask("reap")).error) == "the session stays: its agent is at work"
        await waiter
        assert (await world.ask("reap")).error is None
        assert isinstance((await world.ask("reap")).error, ClosingError)
        await ends_at(world, 0, "session_cap")

    lived(tmp_path, FakeAdapter(default=talks()), story)


# ---- an interrupt that settles ------------------------------------------------------------------------------


async def interrupted(world: World) -> None:
    """A user's turn hangs and nobody watches, until the reaper has ended it."""
    await world.ask("say", text="work")
    await world.until(lambda: world.supervisor.vacancy.settling)
    assert elapsed(world) >= QUIET_MS / SECOND


def test_a_silent_turn_nobody_watches_is_ended_and_the_session_with_it(tmp_path: Path) -> None:
    """H-24: also over an active loop, which is kept as paused."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(1)
        agent.acts.append(hangs())
        await world.ask("say", text="work")
        await world.over()
        assert world.ended == "client_gone"
        assert QUIET_MS / SECOND <= elapsed(world) <= QUIET_MS / SECOND + 2 * GRACE_S + 2
        assert world.place == ("paused", "session_closed")

    agent = FakeAdapter(default=says("continue"))
    world = lived(tmp_path, agent, story)
    assert world.adapter.newest.aborts[0] is AbortReason.CLIENT_GONE


def test_who_waits_for_an_answer_watches(tmp_path: Path) -> None:
    """A silent turn somebody waits for (`say --wait`) is the watchdog's business, not a reaper's (D-33)."""

    async def story(world: World, clock: VirtualClock) -> None:
        answer = asyncio.ensure_future(world.ask("say", text="work", wait=True))
        await asyncio.sleep(QUIET_MS / SECOND + 2 * GRACE_S)
        assert not world.supervisor.vacancy.settling
        assert world.supervisor.status()["session"]["clients"] == 1
        await answer
        assert elapsed(world) >= DEFAULT_SILENCE_MS / SECOND
        left = elapsed(world)
        assert world.supervisor.status()["session"]["clients"] == 0
        await ends_at(world, left + GRACE_S, "idle")

    world = lived(tmp_path, FakeAdapter(default=hangs()), story)
    assert world.adapter.newest.aborts[0] is AbortReason.WATCHDOG


@pytest.mark.parametrize("what", [Doing.TOOL])
def test_a_tool_in_flight_is_activity(tmp_path: Path, what: Doing) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await world.ask("say", text="work")
        await asyncio.sleep(5 * 3600)
        assert world.ended is None
        assert not world.supervisor.vacancy.settling

    lived(tmp_path, FakeAdapter(default=hangs(what)), story)


def test_an_iteration_is_never_ended_by_a_reaper(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(QUIET_MS / SECOND + 120)
        assert world.place == ("running", None)
        assert world.adapter.newest.aborts == []

    lived(tmp_path, FakeAdapter(default=hangs()), story)


def test_case_181_while_it_settles_nobody_comes_in_and_that_ends(tmp_path: Path) -> None:
    """An agent that does not listen: refused until the forced end at the latest."""

    async def story(world: World, clock: VirtualClock) -> None:
        await interrupted(world)
        at = elapsed(world)
        with pytest.raises(SettlingError):
            await world.handlers.follow(Request("follow"), None, asyncio.Future())  # type: ignore[arg-type]
        await world.over()
        assert world.ended == "client_gone"
        assert elapsed(world) <= at + SETTLE_MS / SECOND + 1

    lived(tmp_path, FakeAdapter(default=hangs(), deaf=True), story)


def test_case_181_what_never_settles_is_closed_over(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        async def nothing(*_: object) -> None:
            """The abort is lost on its way."""

        world.supervisor.host.end = nothing  # type: ignore[method-assign]
        await interrupted(world)
        at = elapsed(world)
        await ends_at(world, at + SETTLE_MS / SECOND, "client_gone")

    lived(tmp_path, FakeAdapter(default=hangs(Doing.COMPACTION)), story)


def test_case_182_somebody_acts_while_it_settles(tmp_path: Path) -> None:
    """H-25: the session is wanted again, and gets a whole new grace later."""

    async def story(world: World, clock: VirtualClock) -> None:
        await interrupted(world)
        at = elapsed(world)
        assert (await world.ask("say", text="are you there?")).error is None
        assert not world.supervisor.vacancy.settling
        await asyncio.sleep(GRACE_S - 1)
        assert world.ended is None
        await world.over()
        assert world.ended == "idle"
        assert elapsed(world) >= at + GRACE_S

    agent = FakeAdapter(default=talks(), deaf=True)
    agent.acts.append(hangs())
    lived(tmp_path, agent, story)


@pytest.mark.slow
def test_case_190_a_thousand_come_and_go(tmp_path: Path) -> None:
    """One timer, and no task left behind."""

    async def story(world: World, clock: VirtualClock) -> None:
        await asyncio.sleep(1)
        tasks = len(asyncio.all_tasks())
        for _ in range(1000):
            follower = world.supervisor.bus.subscribe(None)
            world.supervisor.touch()
            await asyncio.sleep(0.001)
            world.supervisor.bus.unsubscribe(follower)
            world.supervisor.touch()
            await asyncio.sleep(0.001)
        assert len(asyncio.all_tasks()) == tasks
        assert world.supervisor.bus.followers == 0
        left = elapsed(world)
        await ends_at(world, left + GRACE_S - 0.01, "idle")

    lived(tmp_path, FakeAdapter(), story)


def test_nothing_is_armed_more_often_than_needed(tmp_path: Path) -> None:
    """A session that its loop keeps is looked at by maintenance only."""
    looks = [0]

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("5h"))
        await asyncio.sleep(60)

        def count() -> None:
            looks[0] += 1

        world.supervisor.maintain = count
        await asyncio.sleep(4 * 3600)

    lived(tmp_path, FakeAdapter(default=says("continue")), story)
    assert looks[0] <= 5
    assert MINUTE < MAINTENANCE_MS


@pytest.mark.slow
def test_a_loop_of_its_own_after_one_that_ticks_drove_keeps_it(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await world.ask("heartbeat", action="start", everyMs=HOUR, forMs=24 * HOUR)
        policy = {"rhythm": HOUR}
        assert (await world.ask("start", objective="look", policy=policy, driver="tick")).error is None
        world.command(Stop())
        assert (await world.ask("start", objective="look", policy=policy)).error is None
        await world.until(lambda: world.loop.iteration_count == 1 and world.place == ("waiting", None))
        await world.ask("heartbeat", action="stop")
        await asyncio.sleep(5 * HOUR / 1000 + 60)
        assert (world.place, world.loop.iteration_count, world.ended) == (("waiting", None), 6, None)

    lived(tmp_path, FakeAdapter(default=says("continue")), story)
