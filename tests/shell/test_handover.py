"""The hand-over of a prompt and what can go wrong with it: answers that come late, never, or before their time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.core.events import Pause, Stop
from loopsup.errors import AgentUnableError, LoopsupError
from loopsup.ports import Accepted, Handover, Origin, Prompt, Refused
from loopsup.shell.slot import START_TIMEOUT_S
from tests.shell.world import World, night
from tests.support.fake_agent import (
    Act,
    FakeAdapter,
    FakeAgent,
    dies,
    does,
    hangs,
    late,
    never,
    raises,
    refuses,
    says,
    shrugs,
    start_fails,
    start_takes,
    talks,
)
from tests.support.script import T0, call, policy_of
from tests.support.virtual import VirtualClock


def _agent(*acts: Act, **named: object) -> FakeAdapter:
    adapter = FakeAdapter(default=says("continue"), **named)  # type: ignore[arg-type]
    adapter.acts.extend(acts)
    return adapter


# ---- user and loop ----------------------------------------------------------------------------------


def test_case_227_the_user_goes_first(tmp_path: Path) -> None:
    agent = _agent(says("continue"), talks("hi", lasts_s=90))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(600 - 0.001)
        clock.pass_s(0.001)  # the wake is due now, and so is what the user says
        said = world.say("hello")
        assert await said == "hi"
        assert world.loop.iteration_count == 1
        await asyncio.sleep(1)
        assert agent.texts() == ["[loop iteration]", "hello", "[loop iteration]"]

    world = night(tmp_path, story, agent)
    assert world.loop.prompts_sent == 2


def test_a_message_during_an_iteration_goes_out_when_it_has_settled(tmp_path: Path) -> None:
    agent = _agent(says("continue", lasts_s=700), talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(10)
        assert await world.say("hello") == "hi"
        assert world.now.wall - T0.wall == 700_000
        assert world.place == ("waiting", None)

    night(tmp_path, story, agent)


def test_messages_keep_their_order(tmp_path: Path) -> None:
    agent = FakeAdapter(default=talks("yes", lasts_s=5))

    async def story(world: World, clock: VirtualClock) -> None:
        said = [world.say(text) for text in ("one", "two", "three")]
        assert await asyncio.gather(*said) == ["yes"] * 3
        assert agent.texts() == ["one", "two", "three"]

    night(tmp_path, story, agent)


def test_a_busy_agent_is_asked_again_without_spending_a_try(tmp_path: Path) -> None:
    agent = _agent(*[refuses("still working", busy=True)] * 20)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(19.5)
        assert world.place == ("queued", None)
        assert (world.loop.iteration_count, world.loop.prompts_sent) == (0, 0)
        await asyncio.sleep(1)
        assert (world.loop.iteration_count, world.loop.prompts_sent) == (1, 1)

    world = night(tmp_path, story, agent)
    assert [e["data"]["origin"] for e in world.events("user.message")] == ["loop"]


def test_a_busy_agent_gets_the_message_later(tmp_path: Path) -> None:
    agent = _agent(*[refuses("still working", busy=True)] * 3, talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        assert await world.say("hello") == "hi"
        assert 3000 <= world.now.wall - T0.wall < 3100
        assert agent.texts() == ["hello"] * 4

    night(tmp_path, story, agent)


def test_a_message_a_busy_agent_gives_back_at_the_close_is_not_lost_without_a_word(tmp_path: Path) -> None:
    """It was on its way when what waited was refused, and comes back behind it."""
    agent = _agent(late(refuses("still working", busy=True), 1))

    async def story(world: World, clock: VirtualClock) -> None:
        said = world.say("hello")
        await asyncio.sleep(0.5)
        assert len(agent.prompts) == 1
        await world.close()
        with pytest.raises(LoopsupError, match="the session was closed"):
            await asyncio.wait_for(said, 1)
        assert world.notices() == ["a message was not delivered: the session was closed"]

    night(tmp_path, story, agent)


def test_a_message_waits_for_a_slow_start(tmp_path: Path) -> None:
    agent = _agent(talks("hi"))
    agent.starts.append(start_takes(60))

    async def story(world: World, clock: VirtualClock) -> None:
        assert await world.say("hello") == "hi"
        assert 60_000 <= world.now.wall - T0.wall < 60_100

    night(tmp_path, story, agent)


def test_a_message_survives_the_agent_that_ended_before_it_went_out(tmp_path: Path) -> None:
    agent = _agent(says("continue"), talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        said = world.say("hello")
        agent.newest.die()
        assert await said == "hi"
        assert len(agent.agents) == 2

    night(tmp_path, story, agent)


def test_a_refused_message_fails_and_the_session_goes_on(tmp_path: Path) -> None:
    agent = _agent(refuses("too long"), talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        with pytest.raises(AgentUnableError, match="too long"):
            await world.say("hello")
        assert await world.say("hello") == "hi"
        assert world.notices() == ["a message was refused: too long"]

    night(tmp_path, story, agent)


# ---- the answer to a hand-over ----------------------------------------------------------------------


def test_refused_five_times_then_protocol_error(tmp_path: Path) -> None:
    """Back-off 1, 2, 4, 8, 16 s; nothing was sent, so nothing counts."""
    agent = _agent(*[refuses()] * 6)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await world.until(lambda: world.place[0] == "paused")
        assert world.place == ("paused", "protocol_error")
        assert 31_000 <= world.now.wall - T0.wall < 31_100
        assert (world.loop.iteration_count, world.loop.prompts_sent) == (0, 0)
        await asyncio.sleep(3600)
        assert len(agent.prompts) == 6

    world = night(tmp_path, story, agent)
    assert not world.events("user.message")


def test_a_decision_while_the_reminder_waits_makes_it_needless(tmp_path: Path) -> None:
    """The adapter learns that it need not send it; the agent lives on, and nothing of the reminder counts."""
    asked: list[bool] = []

    async def waits(agent: FakeAgent, prompt: Prompt) -> Handover:
        asked.append(prompt.wanted())
        await agent.decide(prompt.stamp, call("continue"))
        asked.append(prompt.wanted())
        return Refused("it is needed no more")

    agent = _agent(talks("thinking"), waits)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await world.until(lambda: world.place[0] == "waiting")
        assert asked == [True, False]
        assert agent.newest.closed == 0
        loop = world.loop
        assert (loop.iteration_count, loop.prompts_sent, loop.protocol_retry_count) == (1, 1, 0)
        assert world.notices() == ["the decision came before the reminder was sent, so none is sent"]

    world = night(tmp_path, story, agent)
    assert [e["data"]["origin"] for e in world.events("user.message")] == ["loop"]


@pytest.mark.parametrize("act", [shrugs(), raises(RuntimeError("boom")), never(), late(shrugs(), 50)])
def test_unknown_fate_ends_the_agent_and_is_not_sent_again(tmp_path: Path, act: Act) -> None:
    agent = _agent(act)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await world.until(lambda: world.place[0] == "paused")
        assert world.place == ("paused", "protocol_error")
        assert world.now.wall - T0.wall <= 60_100
        assert (world.loop.iteration_count, world.loop.prompts_sent) == (1, 1)
        assert agent.newest.closed == 1
        assert "whether the prompt" in world.loop.last_attention.text  # type: ignore[union-attr]
        await asyncio.sleep(3600)
        assert len(agent.prompts) == 1

    night(tmp_path, story, agent)


@pytest.mark.parametrize("act", [shrugs(), raises(RuntimeError("boom")), never()])
def test_unknown_fate_of_a_message(tmp_path: Path, act: Act) -> None:
    agent = _agent(act, talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        with pytest.raises(LoopsupError, match="it is unknown whether the prompt arrived"):
            await world.say("hello")
        assert await world.say("again") == "hi"
        assert agent.texts() == ["hello", "again"]
        assert len(agent.agents) == 2

    night(tmp_path, story, agent)


@pytest.mark.parametrize("act", [late(says("continue"), 20), never(says("continue"))])
def test_settled_before_the_answer(tmp_path: Path, act: Act) -> None:
    """The decision and the settlement count; the late answer (or its absence) changes nothing."""
    agent = _agent(act)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(0.1)
        assert world.place == ("waiting", None)
        await asyncio.sleep(590)
        assert world.place == ("waiting", None)
        assert agent.newest.closed == 0
        await asyncio.sleep(20)
        assert world.loop.iteration_count == 2

    world = night(tmp_path, story, agent)
    assert [e["iteration"] for e in world.events("user.message")] == [1, 2]
    kinds = [e["type"] for e in world.events() if e.get("iteration") == 1]
    assert kinds.index("user.message") < kinds.index("assistant.turn_start")


def test_settled_without_a_decision_before_the_answer(tmp_path: Path) -> None:
    """The reminder is handed over while the answer to the envelope is still outstanding."""
    agent = _agent(late(talks(), 20), says("complete"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(30)
        assert world.place == ("completed", None)
        assert (world.loop.prompts_sent, world.loop.protocol_retry_count, world.loop.llm_calls) == (2, 1, 2)

    night(tmp_path, story, agent)


def test_refused_after_it_was_worked_on(tmp_path: Path) -> None:
    """An adapter that contradicts itself must not leave a loop that runs for ever."""

    async def contradict(agent: FakeAgent, prompt: Prompt) -> Handover:
        await agent.decide(prompt.stamp, call("continue"))
        return Refused("never heard of it")

    agent = _agent(contradict)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert world.place == ("waiting", None)
        assert agent.newest.closed == 1

    night(tmp_path, story, agent)


def test_withdrawn_while_it_was_on_its_way(tmp_path: Path) -> None:
    """A stop between the record and the hand-over cannot be overtaken by the hand-over (D-16)."""
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        world.start()  # launches: the hand-over is a task that has not run yet
        assert world.place == ("running", None)
        world.command(Stop())
        await asyncio.sleep(1)
        assert world.place == ("stopped", None)

    world = night(tmp_path, story, agent)
    assert world.loop.prompts_sent == len(agent.prompts)


# ---- the agent is lost ------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.0, 5.0])
def test_lost_in_an_iteration(tmp_path: Path, after_s: float) -> None:
    agent = _agent(dies("exit status 3", after_s=after_s))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(6)
        assert world.place == ("paused", "protocol_error")
        assert world.loop.last_attention is not None
        assert "exit status 3" in world.loop.last_attention.text
        assert world.loop.llm_calls == 1

    world = night(tmp_path, story, agent)
    starts, ends = world.events("assistant.turn_start"), world.events("assistant.turn_end")
    assert len(starts) == len(ends) == 1


@pytest.mark.parametrize("answer", [Accepted(), Refused("gone")])
def test_lost_before_the_answer(tmp_path: Path, answer: Handover) -> None:
    async def act(agent: FakeAgent, prompt: Prompt) -> Handover:
        agent.die("exit status 3")
        await asyncio.sleep(3)
        return answer

    agent = _agent(act)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(5)
        assert world.place == ("paused", "protocol_error")
        assert world.loop.last_attention is not None
        assert "whether the prompt had arrived is unknown" in world.loop.last_attention.text
        await asyncio.sleep(3600)
        assert len(agent.prompts) == 1

    night(tmp_path, story, agent)


def test_lost_after_the_decision(tmp_path: Path) -> None:
    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        await agent.decide(prompt.stamp, call("continue"))
        agent.die()

    agent = _agent(does(job))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(599)
        assert world.place == ("waiting", None)
        await asyncio.sleep(2)
        assert world.loop.iteration_count == 2
        assert len(agent.agents) == 2

    night(tmp_path, story, agent)


def test_lost_between_iterations(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(60)
        agent.newest.die()
        await asyncio.sleep(60)
        assert world.place == ("waiting", None)
        assert len(agent.agents) == 1  # not brought back before it is needed
        await asyncio.sleep(481)
        assert world.loop.iteration_count == 2

    night(tmp_path, story, agent)


def test_lost_with_a_message_on_its_way(tmp_path: Path) -> None:
    agent = _agent(dies("exit status 3", after_s=5), talks("hi"))

    async def story(world: World, clock: VirtualClock) -> None:
        first, second = world.say("one"), world.say("two")
        with pytest.raises(LoopsupError, match="the agent ended: exit status 3"):
            await first
        assert await second == "hi"

    night(tmp_path, story, agent)


# ---- the start --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AgentUnableError("it is not installed"), "it is not installed"),
        (RuntimeError("boom"), "the agent cannot be started: boom"),
        (TimeoutError(), f"the agent was not ready within {START_TIMEOUT_S:g} s"),
    ],
)
def test_start_fails_again_and_again(tmp_path: Path, error: Exception, told: str) -> None:
    agent = _agent()
    agent.starts.extend([start_fails(error)] * 6)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await world.until(lambda: world.place[0] == "paused")
        assert world.place == ("paused", "protocol_error")
        assert 31_000 <= world.now.wall - T0.wall < 31_100
        assert world.loop.iteration_count == 0
        assert world.loop.last_attention is not None
        assert told in world.loop.last_attention.text
        assert [a.closed for a in agent.agents] == [1] * 6

    world = night(tmp_path, story, agent)
    assert [e["data"]["message"] for e in world.events("session.error")] == [told] * 6


def test_start_hangs_once(tmp_path: Path) -> None:
    agent = _agent()
    agent.starts.append(start_takes(None))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(START_TIMEOUT_S - 1)
        assert world.place == ("queued", None)
        await asyncio.sleep(3)
        assert world.loop.iteration_count == 1
        assert [a.closed for a in agent.agents] == [1, 0]

    night(tmp_path, story, agent)


def test_start_fails_with_a_message_waiting(tmp_path: Path) -> None:
    agent = _agent()
    agent.starts.append(start_fails(AgentUnableError("it is not installed")))

    async def story(world: World, clock: VirtualClock) -> None:
        with pytest.raises(AgentUnableError, match="it is not installed"):
            await world.say("hello")
        assert agent.prompts == []

    night(tmp_path, story, agent)


def test_a_wake_during_a_slow_start_is_one_wake(tmp_path: Path) -> None:
    agent = _agent()
    agent.starts.append(start_takes(100))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("30s", min_delay="10s"))
        await asyncio.sleep(101)
        assert world.loop.iteration_count == 1
        assert world.place == ("waiting", None)

    night(tmp_path, story, agent)


def test_pause_and_stop_while_the_agent_starts(tmp_path: Path) -> None:
    agent = _agent()
    agent.starts.append(start_takes(60))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert world.command(Pause()).ok
        await asyncio.sleep(120)
        assert world.place == ("paused", "user")
        assert world.command(Stop()).ok
        assert agent.prompts == []

    night(tmp_path, story, agent)


# ---- runs the agent starts by itself ----------------------------------------------------------------


def test_a_run_of_the_agents_own_is_waited_for(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(590)
        mine = agent.newest
        mine.events.busy()
        mine.begin_turn()
        await asyncio.sleep(60)
        assert world.place == ("queued", None)
        mine.end_turn()
        mine.settle()
        await asyncio.sleep(1)
        assert world.place == ("waiting", None)
        assert (world.loop.iteration_count, world.loop.llm_calls) == (2, 2)

    world = night(tmp_path, story, agent)
    assert [e.get("iteration") for e in world.events("assistant.turn_start")] == [1, None, 2]


def test_a_settlement_nobody_waits_for_changes_nothing(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        before = world.loop
        agent.newest.settle()
        agent.newest.settle(aborted=True)
        await asyncio.sleep(1)
        assert world.loop == before

    night(tmp_path, story, agent)


def test_a_decision_outside_an_iteration_is_refused(tmp_path: Path) -> None:
    agent = _agent()

    async def story(world: World, clock: VirtualClock) -> None:
        await world.supervisor.host.start()
        assert not (await agent.newest.decide(None, call("complete"))).accepted
        world.start()
        await asyncio.sleep(1)
        stale = agent.prompts[0].stamp
        assert not (await agent.newest.decide(stale, call("complete"))).accepted
        assert world.place == ("waiting", None)

    night(tmp_path, story, agent)


# ---- say --wait -------------------------------------------------------------------------------------


def test_what_a_waiting_say_gets(tmp_path: Path) -> None:
    async def errs(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.end_turn("error", error="429 too many requests")
        agent.settle()

    agent = _agent(does(errs), hangs())

    async def story(world: World, clock: VirtualClock) -> None:
        with pytest.raises(LoopsupError, match="429 too many requests"):
            await world.say("one")
        said = world.say("two")
        await asyncio.sleep(1)
        assert (await world.ask("abort")).error is None
        with pytest.raises(LoopsupError, match=r"the response was aborted \(user\)"):
            await said
        agent.acts.append(hangs())
        said = world.say("three")
        queued = world.say("four")
        await asyncio.sleep(1)
        await world.close()
        with pytest.raises(LoopsupError, match=r"aborted \(shutdown\)"):
            await said
        with pytest.raises(LoopsupError, match="the session was closed"):
            await queued

    night(tmp_path, story, agent)


def test_say_over_the_handlers(tmp_path: Path) -> None:
    agent = _agent(talks("hi"), talks(""), talks("x"))

    async def story(world: World, clock: VirtualClock) -> None:
        assert (await world.ask("say", text="hello", wait=True)).message == "hi"
        silent = await world.ask("say", text="hello", wait=True)
        assert silent.message == "the agent has settled without saying anything"
        assert (await world.ask("say", text="hello")).message == "the message is on its way"
        for text in (None, 5, " \n"):
            refused = await world.ask("say", text=text)
            assert refused.error is not None
            assert refused.error.exit == 2
        await asyncio.sleep(1)
        assert agent.texts(Origin.USER) == ["hello"] * 3

    night(tmp_path, story, agent)
