"""The carrier of the decision: tokens, verdicts, and the prompt in flight that a call belongs to."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from loopsup.errors import AgentUnableError
from loopsup.ports import Capabilities, Carrier, Handover, Prompt, Refused
from loopsup.shell.carrier import Carriers
from loopsup.shell.launching import agent_environment
from loopsup.wire.control import Response
from tests.shell.world import World, night
from tests.support.fake_agent import Act, FakeAdapter, FakeAgent, does, says, talks
from tests.support.script import call, policy_of
from tests.support.virtual import VirtualClock

CAN = Capabilities(abort=True, resume=True)  # no native tool: a carrier is issued
STALE = (
    "this does not come from the agent this session drives now (the token is missing or no longer valid); "
    "do not repeat this call"
)


def told(response: Response) -> tuple[str, str]:
    """Whether a call was accepted, and the words."""
    if response.error is None:
        return "accepted", response.message
    return response.error.kind, response.error.message


def carrier_of(agent: FakeAgent) -> Carrier:
    assert agent.launch.carrier is not None
    return agent.launch.carrier


def token_of(agent: FakeAgent) -> str:
    return carrier_of(agent).env["LOOPSUP_TOKEN"]


def test_a_call_belongs_to_the_prompt_in_flight_and_the_verdict_comes_back(tmp_path: Path) -> None:
    answers: list[tuple[str, str]] = []

    async def story(world: World, clock: VirtualClock) -> None:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            await asyncio.sleep(1)
            for arguments in ({**call("complete"), "iteration": 7}, call("complete"), call("block")):
                answers.append(told(await world.ask("decide", token=token_of(agent), arguments=arguments)))
            agent.end_turn()
            agent.settle()

        agent.acts.append(does(job))
        world.start(policy_of("10m"))
        await world.until(lambda: world.place == ("completed", None))

    agent = FakeAdapter(capabilities=CAN)
    world = night(tmp_path, story, agent)
    assert [kind for kind, _ in answers] == ["refused", "accepted", "refused"]
    assert "unknown argument 'iteration'" in answers[0][1]
    assert world.loop.last_decision is not None
    assert (world.loop.last_decision.verb, world.loop.last_decision.iteration) == ("complete", 1)
    assert world.loop.protocol_retry_count == 0


def busy(seconds: int) -> Act:
    """Takes nothing for so long: a draft stands there, or it is not at its prompt."""

    async def act(agent: FakeAgent, prompt: Prompt) -> Handover:
        return Refused("it is not at its prompt", busy=True, retry_ms=seconds * 1000)

    return act


async def decides(world: World, verb: str) -> tuple[str, str]:
    token = token_of(world.adapter.newest)
    return told(await world.ask("decide", token=token, arguments=call(verb)))


@pytest.mark.parametrize(("verb", "place"), [("continue", "waiting"), ("complete", "completed"), ("fail", "failed")])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_decision_while_its_reminder_cannot_go_out_counts(
    tmp_path: Path, goes_on: bool, verb: str, place: str
) -> None:
    """The end of its work was one too early: the program thought in silence, and goes on by itself."""

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        assert world.loop.protocol_retry_count == 1
        agent = world.adapter.newest
        if goes_on:
            agent.events.busy()
            agent.begin_turn()
        assert (await decides(world, verb))[0] == "accepted"
        assert world.place == (place, None)
        assert (await decides(world, "complete"))[0] == "refused", "nothing is running any more"
        if goes_on:
            agent.end_turn()
            agent.settle()
        await asyncio.sleep(300)
        assert (world.place, world.loop.iteration_count, world.loop.prompts_sent) == ((place, None), 1, 1)

    adapter = FakeAdapter(capabilities=CAN)
    adapter.acts.extend([talks("hm"), busy(60)])
    world = night(tmp_path, story, adapter)
    assert [e["data"]["origin"] for e in world.events("user.message")] == ["loop"]


def test_in_a_persons_message_before_the_reminder_nothing_is_decided(tmp_path: Path) -> None:
    answers: list[tuple[str, str]] = []

    async def story(world: World, clock: VirtualClock) -> None:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            answers.append(await decides(world, "complete"))
            agent.end_turn(text="no")
            agent.settle()

        adapter.acts.append(does(job))
        adapter.acts.append(says("continue"))
        world.start()
        await asyncio.sleep(1)
        assert await world.say("hello") == "no"
        assert [kind for kind, _ in answers] == ["refused"]
        await world.until(lambda: world.place == ("waiting", None))
        assert (world.loop.iteration_count, world.loop.prompts_sent, world.loop.protocol_retry_count) == (1, 2, 1)

    adapter = FakeAdapter(capabilities=CAN)
    adapter.acts.extend([talks("hm"), busy(60)])
    night(tmp_path, story, adapter)


def test_outside_an_iteration_nothing_can_be_decided(tmp_path: Path) -> None:
    answers: list[tuple[str, str]] = []

    async def story(world: World, clock: VirtualClock) -> None:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            await asyncio.sleep(1)
            answers.append(told(await world.ask("decide", token=token_of(agent), arguments=call("complete"))))
            agent.end_turn(text="no")
            agent.settle()

        agent.acts.append(does(job))
        world.start(policy_of("10m"), after_ms=3_600_000)
        assert await world.say("hello") == "no"
        answers.append(told(await world.ask("decide", token=token_of(agent.newest), arguments=call("complete"))))

    agent = FakeAdapter(capabilities=CAN)
    world = night(tmp_path, story, agent)
    assert [kind for kind, _ in answers] == ["refused", "refused"]
    assert world.loop.iteration_count == 0


def test_a_missing_or_old_token_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    answers: list[tuple[str, str]] = []

    async def story(world: World, clock: VirtualClock) -> None:
        async def first(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            await asyncio.sleep(1)
            await world.ask("decide", token=token_of(agent), arguments=call("continue"))
            agent.end_turn()
            agent.settle()
            agent.die()

        async def second(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            await asyncio.sleep(1)
            for given in ({}, {"token": 5}, {"token": "x\udc80"}, {"token": token_of(adapter.agents[0])}):
                answers.append(told(await world.ask("decide", arguments=call("complete"), **given)))
                answers.append(told(await world.ask("hello", stage="listed", **given)))
            agent.end_turn()
            agent.settle()

        adapter.acts.extend([does(first), does(second)])
        world.start(policy_of("10m"))
        await asyncio.sleep(700)
        last = token_of(adapter.newest)
        await world.supervisor.host.slot.empty()
        answers.append(told(await world.ask("decide", arguments=call("complete"), token=last)))

    adapter = FakeAdapter(capabilities=CAN, default=talks())
    world = night(tmp_path, story, adapter)
    assert answers == [("refused", STALE)] * 9
    assert world.loop.last_decision is not None
    assert world.loop.last_decision.iteration == 1
    assert token_of(adapter.agents[0]) != token_of(adapter.agents[1])


def test_the_carrier_is_not_for_agents_with_a_tool_of_their_own(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await world.until(lambda: world.place == ("completed", None))

    agent = FakeAdapter(default=says("complete"))
    night(tmp_path, story, agent)
    assert agent.newest.launch.carrier is None


def test_an_agent_whose_tools_were_never_listed_is_not_prompted(tmp_path: Path) -> None:
    """D-55: its start fails in words, is tried again after 1, 2, 4, 8, 16 s, and then the loop pauses."""

    async def never(agent: FakeAgent) -> None:
        problem = await carrier_of(agent).offered(15)
        raise AgentUnableError(problem or "")

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(policy_of("10m"))
        await world.until(lambda: world.place == ("paused", "protocol_error"))

    agent = FakeAdapter(capabilities=CAN)
    agent.starts.extend([never] * 6)
    world = night(tmp_path, story, agent)
    assert len(agent.agents) == 6
    assert agent.prompts == []
    assert world.loop.last_attention is not None
    assert "did not start the MCP server 'loopsup' within 15 s" in world.loop.last_attention.text


def test_hello_is_heard_while_the_session_is_not_open_yet(tmp_path: Path) -> None:
    async def main() -> list[str | None]:
        carriers = Carriers("/s", "night")
        first = carriers.issue()
        nothing = await first.offered(0.01)
        carriers.hello(first.env["LOOPSUP_TOKEN"], "started")
        started = await first.offered(0.01)
        carriers.hello(first.env["LOOPSUP_TOKEN"], "listed")
        listed = await first.offered(0.01)
        again = await carriers.issue().offered(0.01)  # a new agent's tools must be listed anew
        return [nothing, started, listed, again]

    nothing, started, listed, again = asyncio.run(main())
    assert nothing is not None
    assert nothing == again
    assert started == "the agent started the MCP server 'loopsup' and did not ask for its tools within 0.01 s"
    assert listed is None


def test_the_carrier_says_what_to_start_and_keeps_its_token_off_the_command_line() -> None:
    carrier = Carriers("/run/s.sock", "night").issue()
    assert carrier.env == {
        "LOOPSUP_SOCKET": "/run/s.sock",
        "LOOPSUP_TOKEN": carrier.env["LOOPSUP_TOKEN"],
        "LOOPSUP_SESSION": "night",
    }
    assert carrier.args[:2] == ("-I", "-S")
    assert Path(carrier.args[2]).is_file()
    assert os.access(carrier.command, os.X_OK)
    assert not any(carrier.env["LOOPSUP_TOKEN"] in word for word in (carrier.command, *carrier.args))


def test_an_agent_does_not_inherit_the_carrier_of_an_outer_loop() -> None:
    env = agent_environment({"LOOPSUP_SOCKET": "/s", "LOOPSUP_TOKEN": "t", "A": "b"}, "inner", {})
    assert {key: env.get(key) for key in ("LOOPSUP_SOCKET", "LOOPSUP_TOKEN", "LOOPSUP_SESSION", "A")} == {
        "LOOPSUP_SOCKET": None,
        "LOOPSUP_TOKEN": None,
        "LOOPSUP_SESSION": "inner",
        "A": "b",
    }
