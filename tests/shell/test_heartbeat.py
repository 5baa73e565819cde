"""The heartbeat in a session on a virtual clock: beside the loop, in turn with it, and what holds the session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.core.heartbeat import Heartbeat, Rest
from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.store import heartbeat as file
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, says, talks
from tests.support.script import T0, policy_of
from tests.support.virtual import VirtualClock


async def begin(world: World, every_ms: int, *, ask: bool = False, for_ms: int = DAY) -> None:
    response = await world.ask("heartbeat", action="start", everyMs=every_ms, forMs=for_ms, ask=ask)
    assert response.error is None, response


def offsets(world: World) -> list[int]:
    """Minutes after T0 of each beat."""
    return [event["data"]["beat"] for event in world.events("session.heartbeat")]


def test_it_reports_without_a_model_call(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("1h"))
        await asyncio.sleep(1)
        await begin(world, 10 * MINUTE)
        await asyncio.sleep(35 * 60)
        assert world.loop.llm_calls == 1
        assert world.supervisor.status()["heartbeat"]["beats"] == 3

    world = night(tmp_path, story, agent)
    assert offsets(world) == [1, 2, 3]
    told = world.events("session.heartbeat")[0]["data"]
    assert (told["kind"], told["loop"]["state"], told["loop"]["iterationCount"]) == ("heartbeat", "waiting", 1)
    assert told["summary"] == "waiting, iteration 1 of 50, next wake in 49m59s; continue: looked"
    assert "status" not in told, "no seventh value of the attention's enum"


def test_the_beat_at_the_end_is_the_last(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, 10 * MINUTE, for_ms=30 * MINUTE)
        await asyncio.sleep(31 * 60)
        assert "heartbeat" not in world.supervisor.status()

    assert offsets(night(tmp_path, story, FakeAdapter())) == [1, 2, 3]


def test_case_225_it_holds_the_session_and_a_paused_one_does_not(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, 10 * MINUTE)
        await asyncio.sleep(3 * 3600)
        assert world.ended is None
        assert (await world.ask("heartbeat", action="pause")).error is None
        await asyncio.wait_for(world.over(), 25)
        assert world.ended == "idle"

    night(tmp_path, story, FakeAdapter(), hold_open=False)


def test_case_225_both_due_at_once_take_turns_and_neither_is_lost(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue", lasts_s=60))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("9m", for_="2h"))
        await begin(world, 10 * MINUTE, ask=True)
        await asyncio.sleep(2 * 3600 - 1)
        said = [event["data"]["origin"] for event in world.events("user.message")]
        assert said.count("heartbeat") == 11
        assert said.count("loop") == world.loop.iteration_count >= 10
        assert (await world.ask("heartbeat", action="stop")).error is None

    world = night(tmp_path, story, agent)
    open_turns = 0
    for kind in world.kinds():
        open_turns += {"assistant.turn_start": 1, "assistant.turn_end": -1}.get(kind, 0)
        assert 0 <= open_turns <= 1, "two turns at once"
    assert len(agent.agents) == 1


def test_an_unanswered_question_is_not_asked_twice(tmp_path: Path) -> None:
    agent = FakeAdapter(default=talks(lasts_s=12 * 60))

    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, 10 * MINUTE, ask=True)
        await asyncio.sleep(25 * 60)
        assert len(world.events("session.heartbeat")) == 2
        assert len([e for e in world.events("user.message") if e["data"]["origin"] == "heartbeat"]) == 1

    night(tmp_path, story, agent)


def test_a_close_keeps_it_paused_and_it_ends_by_itself(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await begin(world, 10 * MINUTE, for_ms=HOUR)
        await asyncio.sleep(11 * 60)

    first = night(tmp_path, story, FakeAdapter())
    kept = file.load(first.folder)
    assert kept == Heartbeat(
        10 * MINUTE, False, T0.wall + HOUR, None, Rest.SESSION_CLOSED, beats=1, last_at=T0.wall + 10 * MINUTE
    )

    async def later(world: World, clock: VirtualClock) -> None:
        assert world.supervisor.status()["heartbeat"]["pauseReason"] == "session_closed"
        assert (await world.ask("heartbeat", action="resume")).error is None
        await asyncio.sleep(2 * 3600)
        assert "heartbeat" not in world.supervisor.status()

    world = night(tmp_path, later, FakeAdapter())
    assert "the heartbeat has ended: its time is over" in world.notices()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"v":2,"heartbeat":null}', b'{"v":1,"heartbeat":{"every_ms":"x"}}']
)
def test_a_file_that_cannot_be_read_keeps_nobody(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "session"
    folder.mkdir(mode=0o700)
    (folder / file.NAME).write_bytes(content)
    (folder / file.NAME).chmod(0o600)

    async def story(world: World, clock: VirtualClock) -> None:
        assert "heartbeat" not in world.supervisor.status()
        await asyncio.wait_for(world.over(), 25)

    world = night(tmp_path, story, FakeAdapter(), hold_open=False)
    assert any(file.NAME in line for line in world.logged)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"action": "jump"},
        {"action": "start"},
        {"action": "start", "everyMs": 10, "forMs": DAY},
        {"action": "resume"},
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, args: dict[str, object]) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        assert (await world.ask("heartbeat", **args)).error is not None
        assert world.supervisor.pulse.state is None

    night(tmp_path, story, FakeAdapter())
