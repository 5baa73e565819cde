"""`say --autopilot` through the real supervisor: reminders until the model says that the task is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from loopsup.core.autopilot import REMINDER
from loopsup.core.limits import SECOND
from loopsup.core.model import AbortReason, Fixed, Policy
from loopsup.ports import Capabilities, Origin, Prompt
from loopsup.wire.events import SESSION_ERROR, SESSION_TASK_COMPLETE, USER_MESSAGE
from tests.shell.world import World, night
from tests.support.fake_agent import Act, FakeAdapter, FakeAgent, does, hangs, says, talks, without
from tests.support.virtual import VirtualClock

PILOT: Capabilities = without(task_complete=True)
OFTEN = Policy(Fixed(2 * SECOND), min_delay_ms=SECOND)


def completes() -> Act:
    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.emit(SESSION_TASK_COMPLETE, {"summary": "all done"})
        agent.end_turn(text="all done")
        agent.settle()

    return does(job)


def errs() -> Act:
    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.end_turn("error", error="429 rate limit")
        agent.events.emit(SESSION_ERROR, {"kind": "rate_limit", "message": "429 rate limit"})
        agent.settle()

    return does(job)


def pilot(*acts: Act) -> FakeAdapter:
    adapter = FakeAdapter(default=says("continue"), capabilities=PILOT)
    adapter.acts.extend(acts)
    return adapter


def origins(world: World) -> list[str]:
    return [event["data"]["origin"] for event in world.events(USER_MESSAGE)]


def test_reminders_until_task_complete(tmp_path: Path) -> None:
    agent = pilot(talks("planned"), talks("half"), completes())

    async def story(world: World, clock: VirtualClock) -> None:
        done = await world.ask("say", text="do it", wait=True, autopilot=True, maxReminders=5)
        assert (done.error, done.message) == (None, "all done")
        assert origins(world) == ["user", "autopilot", "autopilot"]
        assert [prompt.text for prompt in agent.prompts if prompt.origin is Origin.AUTOPILOT] == [REMINDER] * 2
        assert all(prompt.autopilot for prompt in agent.prompts)

    night(tmp_path, story, agent)


def test_the_bound_and_none_at_all(tmp_path: Path) -> None:
    agent = pilot(*[talks("planning")] * 5)

    async def story(world: World, clock: VirtualClock) -> None:
        done = await world.ask("say", text="do it", wait=True, autopilot=True, maxReminders=2)
        assert (done.error, origins(world)) == (None, ["user", "autopilot", "autopilot"])
        await world.ask("say", text="again", wait=True, autopilot=True, maxReminders=0)
        await world.ask("say", text="plain", wait=True)
        assert origins(world) == ["user", "autopilot", "autopilot", "user", "user"]
        assert [prompt.autopilot for prompt in agent.prompts] == [True, True, True, True, False]

    night(tmp_path, story, agent)


def test_no_reminder_after_an_error_or_an_abort(tmp_path: Path) -> None:
    """Case 169."""
    agent = pilot(errs(), hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        failed = await world.ask("say", text="do it", wait=True, autopilot=True)
        assert failed.error is not None
        assert "429" in failed.error.message
        waiting: asyncio.Task[Any] = asyncio.ensure_future(_asked(world))
        await world.until(lambda: world.supervisor.host.run is not None)
        assert await world.supervisor.host.abort(AbortReason.USER)
        assert (await waiting).error is not None
        assert origins(world) == ["user", "user"]

    night(tmp_path, story, agent)


def _asked(world: World) -> Coroutine[Any, Any, Any]:
    return world.ask("say", text="again", wait=True, autopilot=True)


def test_a_wake_due_meanwhile_comes_once_after_it_and_gets_no_reminder_of_ours(tmp_path: Path) -> None:
    """X-09, X-11, case 171."""
    agent = pilot(says("continue"), talks("planned", lasts_s=9), completes(), says("complete"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(OFTEN)
        await world.until(lambda: world.place == ("waiting", None))
        await world.ask("say", text="do it", wait=True, autopilot=True)
        await world.until(lambda: world.loop.terminal)
        assert origins(world) == ["loop", "user", "autopilot", "loop"]

    night(tmp_path, story, agent)


@pytest.mark.parametrize(("first", "told"), [(talks("planned"), 0), (completes(), 1)], ids=["words", "task_complete"])
def test_case_170_an_iteration_is_ended_by_its_own_protocol_alone(tmp_path: Path, first: Act, told: int) -> None:
    """X-09, X-10: `task_complete` is told and decides nothing; what reminds is the loop, and it counts."""
    agent = pilot(first, says("complete"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(OFTEN)
        await world.until(lambda: world.loop.terminal)
        assert origins(world) == ["loop", "protocol"]
        assert (world.loop.protocol_retry_count, world.loop.iteration_count) == (1, 1)
        assert len(world.events(SESSION_TASK_COMPLETE)) == told

    night(tmp_path, story, agent)


def test_an_agent_without_the_tool_is_refused(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        refused = await world.ask("say", text="do it", autopilot=True)
        assert refused.error is not None
        assert refused.error.exit == 6
        assert agent.prompts == []

    agent = FakeAdapter(default=says("continue"), capabilities=without(task_complete=False))
    night(tmp_path, story, agent)
