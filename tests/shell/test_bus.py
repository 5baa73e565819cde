"""The event stream: numbers, what is stored and what is only shown, followers that lag."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from loopsup.core.events import Stop
from loopsup.shell.bus import FOLLOWER_QUEUE, Bus, Follower
from loopsup.store import eventlog
from loopsup.store.eventlog import EventWriter
from loopsup.wire.control import FOLLOW_BACKLOG
from tests.shell.world import FullDisk, World, night
from tests.support.fake_agent import FakeAdapter, says
from tests.support.virtual import VirtualClock


def _bus(folder: Path) -> tuple[Bus, FullDisk, list[str]]:
    folder.mkdir(mode=0o700)
    logged: list[str] = []
    bus, disk = Bus(VirtualClock(), logged.append), FullDisk(EventWriter.open(folder))
    bus.attach(disk)  # type: ignore[arg-type]
    return bus, disk, logged


def _taken(follower: Follower) -> list[Any]:
    """What it has in its queue; None for the end."""

    async def take() -> list[Any]:
        out = []
        while not follower._lines.empty():
            line = await follower.next()
            out.append(None if line is None else json.loads(line))
        return out

    return asyncio.run(take())


def _notice(bus: Bus, text: str) -> None:
    bus.publish("loop.notice", {"message": text})


def test_numbers_and_what_is_stored(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    follower = bus.subscribe(None)
    _notice(bus, "one")
    bus.publish("assistant.message_delta", {"text": "."}, iteration=3, agent_id="sub")
    bus.publish("session.idle", {})
    _notice(bus, "two")
    bus.close()
    stored = list(eventlog.read(tmp_path / "s"))
    assert [(e["seq"], e["data"]["message"]) for e in stored] == [(1, "one"), (2, "two")]
    seen = [line["event"] for line in _taken(follower)]
    assert [(e["seq"], e["type"]) for e in seen] == [
        (1, "loop.notice"),
        (1, "assistant.message_delta"),
        (1, "session.idle"),
        (2, "loop.notice"),
    ]
    assert (seen[1]["iteration"], seen[1]["agentId"]) == (3, "sub")


def test_numbers_go_on_after_a_reopen(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    _notice(bus, "one")
    bus.close()
    again = Bus(VirtualClock(), print)
    _notice(again, "early")  # before there is a log
    again.attach(EventWriter.open(tmp_path / "s"))
    _notice(again, "two")
    again.close()
    stored = [(e["seq"], e["data"]["message"]) for e in eventlog.read(tmp_path / "s")]
    assert stored == [(1, "one"), (2, "early"), (3, "two")]


def test_since_has_no_gap_and_nothing_twice(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    for n in range(1, FOLLOW_BACKLOG + 101):
        _notice(bus, str(n))
        bus.publish("assistant.message_delta", {"text": "."})
    file = [e["seq"] for e in eventlog.read(tmp_path / "s")]
    follower = bus.subscribe(file[-31])
    _notice(bus, "live")
    bus.close()
    assert [line["event"]["seq"] for line in _taken(follower)] == [*file[-30:], file[-1] + 1]
    assert [line["event"]["seq"] for line in _taken(bus.subscribe(0))] == list(range(102, FOLLOW_BACKLOG + 102))
    assert _taken(bus.subscribe(10**30)) == []


def test_a_follower_that_lags_is_dropped_and_the_others_go_on(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    slow, quick = bus.subscribe(None), bus.subscribe(None)
    seen = 0
    for n in range(FOLLOWER_QUEUE + 10):
        bus.publish("assistant.message_delta", {"text": str(n)})
        seen += len(_taken(quick)) if n % 1000 == 0 else 0
    seen += len(_taken(quick))
    bus.close()
    assert seen == FOLLOWER_QUEUE + 10
    assert slow.dropped
    assert not quick.dropped
    assert bus.followers == 1  # nobody's session is kept open for it
    lines = _taken(slow)
    assert len(lines) == FOLLOWER_QUEUE + 1
    assert lines[-1] is None


def test_who_only_waits_keeps_no_lines_and_is_never_dropped(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    waiting = bus.join()
    for n in range(FOLLOWER_QUEUE + 10):
        bus.publish("assistant.message_delta", {"text": str(n)})
    bus.end("test")
    bus.close()
    assert bus.followers == 1
    assert _taken(waiting) == []


def test_a_full_disk_loses_the_line_and_not_the_session(tmp_path: Path) -> None:
    bus, disk, logged = _bus(tmp_path / "s")
    follower = bus.subscribe(None)
    _notice(bus, "one")
    disk.full = True
    _notice(bus, "lost")
    _notice(bus, "lost, too")
    assert bus.problem is not None
    assert len(logged) == 1
    disk.full = False
    _notice(bus, "two")
    bus.close()
    assert bus.problem is None
    assert [e["data"]["message"] for e in eventlog.read(tmp_path / "s")] == ["one", "two"]
    shown = [line["event"]["data"]["message"] for line in _taken(follower)]
    assert shown == ["one", "lost", "lost, too", "two"]


def test_a_loop_goes_on_without_its_event_log(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.log.full = True
        world.start()
        await asyncio.sleep(1300)
        assert world.loop.iteration_count == 3
        assert world.loop.llm_calls == 3
        assert "No space left" in world.supervisor.status()["session"]["problem"]

    night(tmp_path, story, agent)


def test_status_is_shown_when_it_says_something_new(tmp_path: Path) -> None:
    bus, _, _ = _bus(tmp_path / "s")
    session = {"clients": 1}

    def status(state: str, elapsed: int) -> dict[str, Any]:
        return {"session": session, "loop": {"state": state, "calendarElapsedMs": elapsed, "deadlineRemainingMs": 9}}

    follower = bus.subscribe(None)
    for shown in (
        status("waiting", 1),
        status("waiting", 2),
        status("running", 2),
        {"session": session, "loop": None},
    ):
        bus.show_status(shown)
        bus.show_status(shown)
    states = [line["status"]["loop"] for line in _taken(follower)]
    assert [loop and loop["state"] for loop in states] == ["waiting", "running", None]
    bus.end("command")
    assert _taken(follower) == [{"closed": "command"}, None]
    bus.close()


def test_a_follower_sees_a_night(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        follower = world.supervisor.bus.subscribe(0)
        world.start()
        await asyncio.sleep(3 * 600 - 1)
        world.command(Stop())
        await world.close()
        lines = []
        while (line := await follower.next()) is not None:
            lines.append(json.loads(line))
        events = [line["event"] for line in lines if "event" in line]
        stored = [event for event in events if event["type"] != "session.idle"]
        assert stored == world.events()
        assert lines[-1] == {"closed": "test"}
        states = [line["status"]["loop"]["state"] for line in lines if "status" in line and line["status"]["loop"]]
        changes = [state for n, state in enumerate(states) if n == 0 or states[n - 1] != state]
        assert changes == ["queued", *["running", "waiting"] * 3, "stopped"]

    night(tmp_path, story, agent)
