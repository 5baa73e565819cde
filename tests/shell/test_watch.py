"""What the host watches: aborts nobody listens to, silence, turns that go on after their decision, the close."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.core.events import Pause, Stop
from loopsup.core.limits import SECOND
from loopsup.errors import LoopsupError
from loopsup.ports import Conversation, Doing, Handover, Prompt, Question
from tests.shell.world import World, night
from tests.support.fake_agent import (
    Act,
    FakeAdapter,
    FakeAgent,
    does,
    hangs,
    never,
    says,
    start_takes,
    talks,
    without,
)
from tests.support.script import T0, call
from tests.support.virtual import VirtualClock


def _agent(*acts: Act, **named: object) -> FakeAdapter:
    adapter = FakeAdapter(default=says("continue"), **named)  # type: ignore[arg-type]
    adapter.acts.extend(acts)
    return adapter


# ---- abort ------------------------------------------------------------------------------------------


def test_abort_pauses_as_interrupted(tmp_path: Path) -> None:
    agent = _agent(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert (await world.ask("abort")).message == "the turn is aborted"
        assert world.place == ("paused", "interrupted")
        assert agent.newest.closed == 0
        refused = await world.ask("abort")
        assert refused.error is not None
        assert refused.error.message == "no turn is in flight"

    world = night(tmp_path, story, agent)
    assert [e["data"]["stopReason"] for e in world.events("assistant.turn_end")] == ["aborted"]


def test_an_agent_that_ignores_an_abort_is_ended(tmp_path: Path) -> None:
    agent = _agent(hangs(), deaf=True)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(5)
        assert (await world.ask("abort")).error is None
        assert 15 * SECOND <= world.now.wall - T0.wall < 15_100
        assert world.place == ("paused", "interrupted")
        assert agent.newest.closed == 1

    world = night(tmp_path, story, agent)
    assert len(world.events("assistant.turn_end")) == 1


def test_an_abort_that_hangs_in_the_adapter(tmp_path: Path) -> None:
    agent = _agent(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        async def stuck(reason: object) -> None:
            await asyncio.Event().wait()

        world.start()
        await asyncio.sleep(5)
        agent.newest.abort = stuck  # type: ignore[method-assign]
        assert (await world.ask("abort")).error is None
        assert world.place == ("paused", "interrupted")
        assert any("abort failed in the adapter" in line for line in world.logged)

    night(tmp_path, story, agent)


def test_aborted_from_inside_the_agent(tmp_path: Path) -> None:
    async def escape(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.end_turn("aborted")
        agent.settle(aborted=True)

    agent = _agent(does(escape))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert world.place == ("paused", "interrupted")

    night(tmp_path, story, agent)


# ---- silence ----------------------------------------------------------------------------------------


def test_silence_in_a_model_request_is_an_omission(tmp_path: Path) -> None:
    agent = _agent(hangs(), says("continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(15 * 60 - 1)
        assert world.place == ("running", None)
        await asyncio.sleep(2)
        assert world.place == ("waiting", None)
        assert world.loop.protocol_retry_count == 1
        assert [reason.value for reason in agent.newest.aborts] == ["watchdog"]

    world = night(tmp_path, story, agent)
    assert world.notices() == ["the agent has been silent for too long; its response is aborted"]


@pytest.mark.parametrize("what", [Doing.TOOL, Doing.BACKOFF, Doing.COMPACTION, Doing.NOTHING])
def test_silence_outside_a_model_request_is_none(tmp_path: Path, what: Doing) -> None:
    agent = _agent(hangs(what))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(20 * 3600)
        assert world.place == ("running", None)
        assert agent.newest.aborts == []

    night(tmp_path, story, agent)


def test_silence_can_be_switched_off(tmp_path: Path) -> None:
    agent = _agent(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(20 * 3600)
        assert agent.newest.aborts == []

    night(tmp_path, story, agent, silence_ms=0)


def test_any_sign_of_life_breaks_the_silence(tmp_path: Path) -> None:
    async def slow(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        for _ in range(6):
            await asyncio.sleep(14 * 60)
            agent.events.emit("assistant.message_delta", {"text": "."})
        await agent.decide(prompt.stamp, call("complete"))
        agent.end_turn()
        agent.settle()

    agent = _agent(does(slow))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(6 * 14 * 60 + 1)
        assert world.place == ("completed", None)

    night(tmp_path, story, agent)


def test_waiting_for_a_person_is_no_silence_and_the_count_begins_anew_after_it(tmp_path: Path) -> None:
    async def asks(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        await asyncio.sleep(10 * 60)
        agent.events.ask(Question("q1", "dialog", "", "which one?"))
        await asyncio.Event().wait()

    agent = _agent(does(asks))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(14 * 60)
        assert (await world.ask("answer", allow=True)).error is None
        await asyncio.sleep(14 * 60)
        assert agent.newest.aborts == []
        await asyncio.sleep(2 * 60)
        assert [reason.value for reason in agent.newest.aborts] == ["watchdog"]

    night(tmp_path, story, agent)


def test_a_question_withdrawn_begins_the_count_anew(tmp_path: Path) -> None:
    async def asks(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.ask(Question("q1", "dialog", "", "which one?"))
        await asyncio.sleep(4 * 60)
        await asyncio.sleep(10 * 60)
        await asyncio.Event().wait()

    agent = _agent(does(asks))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(4 * 60)
        agent.newest.events.ask_over("q1", "closed")
        await asyncio.sleep(14 * 60)
        assert agent.newest.aborts == []

    night(tmp_path, story, agent)


def test_a_silent_user_turn_is_ended_too(tmp_path: Path) -> None:
    agent = _agent(hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        with pytest.raises(LoopsupError, match=r"aborted \(watchdog\)"):
            await world.say("hello")

    night(tmp_path, story, agent)


def test_a_silent_agent_that_ignores_the_abort_is_ended(tmp_path: Path) -> None:
    agent = _agent(hangs(), deaf=True)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(15 * 60 + 9)
        assert agent.newest.closed == 0
        agent.acts.append(says("continue"))
        await asyncio.sleep(3)
        assert [a.closed for a in agent.agents] == [1, 0]
        assert world.place == ("waiting", None)
        assert (world.loop.protocol_retry_count, world.loop.llm_calls) == (1, 2)

    night(tmp_path, story, agent)


# ---- after the decision -----------------------------------------------------------------------------


def test_a_turn_that_goes_on_after_its_decision_is_cut(tmp_path: Path) -> None:
    async def chats_on(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        await agent.decide(prompt.stamp, call("continue"))
        agent.end_turn("toolUse")
        agent.begin_turn()
        await asyncio.Event().wait()

    agent = _agent(does(chats_on), capabilities=without(terminate_on_tool=False))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(29)
        assert world.place == ("running", None)
        await asyncio.sleep(2)
        assert world.place == ("waiting", None)
        assert world.loop.llm_calls == 2
        assert [reason.value for reason in agent.newest.aborts] == ["decision"]

    world = night(tmp_path, story, agent)
    assert len(world.events("assistant.turn_end")) == 2
    assert world.notices() == []


def test_an_agent_with_a_terminal_tool_is_left_alone(tmp_path: Path) -> None:
    agent = _agent(hangs(Doing.TOOL, verb="continue"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(3600)
        assert world.place == ("running", None)
        assert agent.newest.aborts == []

    night(tmp_path, story, agent)


# ---- close ------------------------------------------------------------------------------------------


async def _waiting(world: World) -> None:
    world.start()
    await asyncio.sleep(1)


async def _paused(world: World) -> None:
    await _waiting(world)
    world.command(Pause())


async def _stopped(world: World) -> None:
    await _waiting(world)
    world.command(Stop())


async def _queued(world: World) -> None:
    world.adapter.starts.append(start_takes(60))
    await _waiting(world)


async def _running(world: World) -> None:
    world.adapter.acts.append(hangs())
    await _waiting(world)


async def _handing_over(world: World) -> None:
    world.adapter.acts.append(never())
    await _waiting(world)


async def _decided(world: World) -> None:
    world.adapter.acts.append(hangs(Doing.TOOL, verb="continue"))
    await _waiting(world)


async def _completing(world: World) -> None:
    world.adapter.acts.append(hangs(Doing.TOOL, verb="complete"))
    await _waiting(world)


async def _nothing(world: World) -> None:
    await world.supervisor.host.start()


CLOSES = [
    (_waiting, ("paused", "session_closed")),
    (_paused, ("paused", "user")),
    (_stopped, ("stopped", None)),
    (_queued, ("paused", "session_closed")),
    (_running, ("paused", "session_closed")),
    (_handing_over, ("paused", "session_closed")),
    (_decided, ("paused", "session_closed")),
    (_completing, ("completed", None)),
]


@pytest.mark.parametrize(("reach", "place"), CLOSES)
@pytest.mark.parametrize("deaf", [False, True])
def test_close_in_each_state(tmp_path: Path, reach: object, place: tuple[str, str | None], deaf: bool) -> None:
    agent = _agent(deaf=deaf)

    async def story(world: World, clock: VirtualClock) -> None:
        await reach(world)  # type: ignore[operator]
        follower = world.supervisor.bus.subscribe(None)
        waiting = asyncio.create_task(world.ask("wait"))
        await asyncio.sleep(0)
        closing = await world.ask("close")
        assert closing.message == "the session is closed"
        assert (await waiting).error is None
        assert world.place == place
        assert [a.closed for a in agent.agents] == [1] * len(agent.agents)
        await world.over()
        lines = []
        while (line := await follower.next()) is not None:
            lines.append(line)
        assert lines[-1] == b'{"closed":"command"}\n'
        for verb, args in (("start", {}), ("pause", {}), ("say", {"text": "x"})):
            late = await world.ask(verb, **args)
            assert late.error is not None
            assert late.error.exit == 4

    world = night(tmp_path, story, agent)
    assert world.kinds()[-1] == "session.shutdown"
    starts, ends = world.events("assistant.turn_start"), world.events("assistant.turn_end")
    assert len(starts) == len(ends)


def test_close_without_a_loop(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        await _nothing(world)
        await world.close()
        assert agent.newest.closed == 1

    assert night(tmp_path, story, agent).records() == []


def test_close_while_a_deaf_agent_is_being_ended(tmp_path: Path) -> None:
    """The close waits for the ending that is under way: no process outlives the session."""
    agent = _agent(hangs(), deaf=True)
    ended = []

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        mine = agent.newest
        gone = mine.close

        async def slowly() -> None:
            await asyncio.sleep(8)
            await gone()
            ended.append(world.now.wall)

        mine.close = slowly  # type: ignore[method-assign]
        asking = asyncio.create_task(world.ask("abort"))
        await asyncio.sleep(12)
        assert ended == []
        await world.close()
        assert len(ended) == 1
        await asking

    night(tmp_path, story, agent)


def test_an_adapter_that_cannot_close(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        async def stuck() -> None:
            await asyncio.Event().wait()

        world.start()
        await asyncio.sleep(1)
        agent.newest.close = stuck  # type: ignore[method-assign]
        await world.close()
        assert world.now.wall - T0.wall < 35 * SECOND
        assert world.place == ("paused", "session_closed")

    night(tmp_path, story, agent)


def test_close_fails_the_messages_and_the_start(tmp_path: Path) -> None:
    agent = _agent()
    agent.starts.append(start_takes(None))

    async def story(world: World, clock: VirtualClock) -> None:
        said = world.say("hello")
        await asyncio.sleep(1)
        await world.close()
        with pytest.raises(LoopsupError, match="the session was closed"):
            await said
        assert agent.newest.closed == 1
        assert agent.prompts == []

    night(tmp_path, story, agent)


def test_what_an_ended_agent_says_is_not_heard(tmp_path: Path) -> None:
    agent = _agent(hangs(), deaf=True)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        await world.ask("abort")
        old, before = agent.agents[0], world.kinds()
        old.events.emit("assistant.message", {"turnId": "t1", "text": "still here", "toolRequests": []})
        old.events.settled(aborted=False)
        old.events.busy()
        old.events.lost("late")
        old.events.ask(Question("q", "dialog", "", "?"))
        assert not (await old.decide(agent.prompts[0].stamp, call("complete"))).accepted
        assert world.kinds() == before
        assert world.supervisor.host.questions.pending is None
        assert world.place == ("paused", "interrupted")

    night(tmp_path, story, agent)


def test_the_process_that_moved_to_another_conversation_is_ended(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        agent.newest.events.moved(Conversation("other", None, world.folder))
        await asyncio.sleep(1)
        assert agent.newest.closed == 1
        assert world.place == ("waiting", None)
        await asyncio.sleep(600)
        assert (len(agent.agents), world.loop.iteration_count) == (2, 2)

    night(tmp_path, story, agent)


def test_a_close_does_not_wait_for_an_answer_that_never_comes(tmp_path: Path) -> None:
    async def slow(agent: FakeAgent, prompt: Prompt) -> Handover:
        await asyncio.Event().wait()
        raise AssertionError

    agent = _agent(slow)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        await world.close()
        assert world.now.wall - T0.wall < 10 * SECOND

    night(tmp_path, story, agent)


def test_messages_of_two_at_once(tmp_path: Path) -> None:
    agent = _agent(talks("a", lasts_s=1), talks("b"))

    async def story(world: World, clock: VirtualClock) -> None:
        one, two = await asyncio.gather(world.ask("say", text="1", wait=True), world.ask("say", text="2", wait=True))
        assert (one.message, two.message) == ("a", "b")

    night(tmp_path, story, agent)
