"""What is told and counted of turns: pairs, the one idle, replies that are none, and what nobody saw live."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopsup.ports import Origin, Prompt
from loopsup.store import eventlog
from loopsup.store.journal import read_tail
from loopsup.wire.events import EPHEMERAL, TURN_END, TURN_START
from loopsup.wire.status import status_object
from tests.shell.world import World, night
from tests.support.fake_agent import Act, FakeAdapter, FakeAgent, dies, does, errs, hangs, says, settles, talks
from tests.support.script import call, policy_of
from tests.support.virtual import VirtualClock

REPLIES: dict[str, Act] = {"error": errs("401 unauthorized"), "empty": talks(""), "nothing": settles()}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("helps", [True, False])
def test_case_189_a_wake_that_gets_no_reply_is_not_stuck(tmp_path: Path, reply: Act, helps: bool) -> None:
    """L-70: the reminder, and then the next wake or a pause with `protocol_error`."""
    agent = FakeAdapter(default=says("continue"))
    agent.acts.extend([says("continue"), reply, *([] if helps else [reply])])

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(601)
        assert world.place == (("waiting", None) if helps else ("paused", "protocol_error"))
        assert (world.loop.iteration_count, world.loop.prompts_sent, world.loop.protocol_retry_count) == (2, 3, 1)
        assert not world.supervisor.host.working
        await asyncio.sleep(600)
        assert world.loop.iteration_count == (3 if helps else 2)

    world = night(tmp_path, story, agent)
    assert len(world.events("loop.attention")) == (0 if helps else 1)
    assert [prompt.origin for prompt in agent.prompts[:3]] == [Origin.LOOP, Origin.LOOP, Origin.PROTOCOL]


ENDS: dict[str, Act] = {"answer": talks(), **REPLIES, "abort": hangs(), "death": dies()}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("iteration", [False, True], ids=["user", "loop"])
def test_case_167_every_run_is_idle_once_at_its_settlement(tmp_path: Path, name: str, iteration: bool) -> None:
    """A-10, A-11, X-13: none before it, and none in the file."""
    seen: list[str] = []
    agent = FakeAdapter(default=says("complete"))
    agent.acts.append(ENDS[name])

    async def story(world: World, clock: VirtualClock) -> None:
        def shown(line: bytes | None) -> None:
            kind = json.loads(line or b"{}").get("event", {}).get("type")
            if kind in ("user.message", "session.idle", TURN_START, TURN_END):
                seen.append(kind)

        world.supervisor.bus.subscribe(None).put = shown  # type: ignore[method-assign]
        if iteration:
            world.start(policy_of("10m"))
        else:
            world.say("hello").add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        if name == "abort":
            assert seen[-1] == TURN_START
            assert (await world.ask("abort")).error is None
        assert not world.supervisor.host.working

    world = night(tmp_path, story, agent)
    reminded = iteration and name in ("answer", *REPLIES)
    turn = [TURN_START, TURN_END]
    first = ["user.message", *([] if name == "nothing" else turn), "session.idle"]
    assert seen == first + (["user.message", *turn, "session.idle"] if reminded else [])
    assert "session.idle" not in world.kinds()


def test_case_165_a_text_that_speaks_of_turns_is_none(tmp_path: Path) -> None:
    """A-08, A-09, D-29: three turns with tools and a last one; counted as a person would count them."""
    quoted = "assistant.turn_start " * 10

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        for number in range(3):
            agent.begin_turn()
            told = {"toolCallId": f"c{number}", "toolName": "bash"}
            agent.events.emit("tool.execution_start", {**told, "arguments": {"command": f"grep {quoted}"}})
            agent.events.emit("tool.execution_complete", {**told, "success": True, "result": quoted})
            agent.end_turn("toolUse", text=quoted)
        agent.begin_turn()
        agent.end_turn(text=quoted)
        agent.settle()

    agent = FakeAdapter(default=does(job))

    async def story(world: World, clock: VirtualClock) -> None:
        assert await world.say(quoted) == quoted

    world = night(tmp_path, story, agent)
    assert (world.folder / eventlog.NAME).read_bytes().count(b"assistant.turn_start") == 4
    assert len(world.events(TURN_START)) == len(world.events(TURN_END)) == 4
    assert world.events("user.message")[0]["data"]["text"] == quoted


def test_case_201_an_end_withdraws_what_is_the_loops_and_keeps_what_people_said(tmp_path: Path) -> None:
    """L-11, L-143, D-16: three messages wait when it completes; they come in their order, and no wake with them."""
    agent = FakeAdapter(default=talks("yes"))
    agent.acts.append(says("complete", lasts_s=700))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(650)  # by its rhythm another one would be due
        said = [world.say(text) for text in ("one", "two", "three")]
        assert await asyncio.gather(*said) == ["yes"] * 3
        assert world.place == ("completed", None)
        await asyncio.sleep(3600)
        assert agent.texts() == ["[loop iteration]", "one", "two", "three"]

    night(tmp_path, story, agent)


def test_case_222_what_nobody_saw_live_is_not_needed(tmp_path: Path) -> None:
    """X-26: pieces and idle are lost, and who comes back is told what the journal says."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        for piece in ("half ", "an ", "answer"):
            agent.events.emit("assistant.message_delta", {"text": piece})
        await agent.decide(prompt.stamp, call("continue"))
        agent.end_turn(text="half an answer")
        agent.settle()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await asyncio.sleep(3 * 3600 + 1)
        assert not EPHEMERAL & set(world.kinds())
        follower = world.supervisor.bus.subscribe(None)
        status = world.supervisor.status()
        assert status == status_object(world.supervisor.facts(), read_tail(world.folder).loop, world.now)
        shown = status["loop"]
        assert (shown["state"], shown["iterationCount"], shown["llmCalls"]) == ("waiting", 19, 19)
        world.supervisor.bus.unsubscribe(follower)

    night(tmp_path, story, FakeAdapter(default=does(job)))
