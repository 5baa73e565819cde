"""What wants a person's attention: state record, visible record, status, hook, in this order (L-129, D-13)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopsup.clock import SystemClock
from loopsup.core.events import Pause, Stop
from loopsup.store import eventlog
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, hangs, says
from tests.support.virtual import VirtualClock


def _configure(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "config" / "loopsup"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def _hook(tmp_path: Path, script: str) -> Path:
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o700)
    _configure(tmp_path, f'on_attention = "{hook}"\n')
    return hook


def test_the_order(tmp_path: Path) -> None:
    _configure(tmp_path, 'on_attention = "not/absolute"\n')
    agent = FakeAdapter(default=says("complete"))
    order: list[str] = []

    async def story(world: World, clock: VirtualClock) -> None:
        append = world.journal._real.append

        def written(*args: object, **named: object) -> object:
            record = append(*args, **named)  # type: ignore[arg-type]
            if record.loop is not None and record.loop.terminal:  # type: ignore[union-attr]
                order.append("journal")
            return record

        world.journal._real.append = written  # type: ignore[method-assign, assignment]

        def shown(line: bytes | None) -> None:
            told = json.loads(line or b"{}")
            kind = told.get("event", {}).get("type")
            if (
                kind in ("loop.attention", "loop.hook")
                or told.get("event", {}).get("data", {}).get("to") == "completed"
            ):
                order.append(kind)
            elif "status" in told and told["status"]["loop"]["lastAttention"] is not None:
                order.append("status")

        world.supervisor.bus.subscribe(None).put = shown  # type: ignore[method-assign]
        world.start()
        await asyncio.sleep(1)

    world = night(tmp_path, story, agent)
    assert order[:5] == ["journal", "loop.transition", "loop.attention", "status", "loop.hook"]
    (hook,) = world.events("loop.hook")
    assert "not/absolute" in hook["data"]["error"]
    assert agent.newest.announced == ["completed"]


@pytest.mark.parametrize(("verb", "places"), [("complete", 1), ("fail", 1), ("block", 1), ("continue", 0)])
def test_which_ends_are_announced(tmp_path: Path, verb: str, places: int) -> None:
    agent = FakeAdapter(default=says(verb))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)

    world = night(tmp_path, story, agent)
    events = world.events("loop.attention")
    assert len(events) == places
    assert all(e["data"]["evidence"]["source"] == "agent" for e in events)


def test_pause_stop_and_close_are_no_alarm(tmp_path: Path) -> None:
    agent = FakeAdapter(default=says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        world.command(Pause())
        await asyncio.sleep(1)
        world.command(Stop())
        world.start()
        await asyncio.sleep(1)

    assert night(tmp_path, story, agent).events("loop.attention") == []


def _live(tmp_path: Path, adapter: FakeAdapter) -> World:
    """In real time, because a hook is a process: one iteration, then the close."""
    worlds = []

    async def main() -> None:
        async with World(SystemClock(), tmp_path / "session", adapter) as world:
            worlds.append(world)
            world.start()
            await world.until(lambda: world.place[0] != "running" and world.place[0] != "queued")
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(main())
    return worlds[0]


@pytest.mark.slow
def test_the_close_lets_a_hook_finish(tmp_path: Path) -> None:
    out = tmp_path / "event.json"
    _hook(tmp_path, f"sleep 0.3; cat >{out}")
    world = _live(tmp_path, FakeAdapter(default=says("complete")))
    (attention,) = world.events("loop.attention")
    assert json.loads(out.read_text()) == attention["data"]
    kinds = [event["type"] for event in eventlog.read(world.folder)]
    assert kinds.index("loop.attention") < kinds.index("loop.hook") < kinds.index("session.shutdown")


@pytest.mark.slow
def test_an_announcement_made_by_the_close_itself(tmp_path: Path) -> None:
    """A `complete` accepted before the close is applied by it; its hook runs, too."""
    out = tmp_path / "event.json"
    _hook(tmp_path, f"cat >{out}")
    adapter = FakeAdapter(default=hangs(verb="complete"))
    worlds = []

    async def main() -> None:
        async with World(SystemClock(), tmp_path / "session", adapter) as world:
            worlds.append(world)
            world.start()
            await world.until(lambda: world.loop.last_decision is not None)

    asyncio.run(main())
    assert worlds[0].place == ("completed", None)
    assert json.loads(out.read_text())["status"] == "completed"


@pytest.mark.slow
def test_a_failing_hook_changes_nothing(tmp_path: Path) -> None:
    _hook(tmp_path, "echo broken >&2; exit 3")
    world = _live(tmp_path, FakeAdapter(default=says("block")))
    (hook,) = world.events("loop.hook")
    assert (hook["data"]["exit"], hook["data"]["stderr"]) == (3, "broken\n")
    assert world.place == ("paused", "blocked")
    assert len(world.events("loop.attention")) == 1
