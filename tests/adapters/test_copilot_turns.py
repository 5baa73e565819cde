"""What the real Copilot does between a prompt and its settlement, as the supervisor hears it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import (
    AbortReason,
    Accepted,
    DecisionCall,
    Doing,
    Permissions,
    Refused,
    Stamp,
    Verdict,
)
from loopsup.wire import events as ev
from tests.support.agent_env import said, stamped
from tests.support.copilot_env import CopilotWorld, Free, drive, heard, running, shell, task, tool_texts
from tests.support.model_server import Body, ModelServer, Reply, decision
from tests.support.recording import Recording

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

BUILD = "while [ ! -e built ]; do sleep 0.1; done; echo late"  # ends when the test says so

STAMP = Stamp("loop", 1, 1)
FREE = Permissions(allow_all=True)


def in_iteration(call: DecisionCall) -> Verdict:
    return Verdict(call.stamp is not None, "recorded" if call.stamp is not None else "there is no iteration")


async def judged(call: DecisionCall) -> Verdict:
    return in_iteration(call)


def test_a_decision_ends_the_turn_with_one_request(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.round(stamped())
            verb, arguments = decision("complete")
            assert run.told.all("decide") == [DecisionCall(STAMP, arguments)]
            assert len(server.requests) == 1
            assert run.told.names() == [
                ev.TURN_START,
                ev.ASSISTANT_MESSAGE,
                ev.TOOL_START,
                ev.TOOL_COMPLETE,
                ev.TURN_END,
                "settled",
            ]
            assert run.told.events(ev.TURN_END) == [
                {
                    "turnId": "0",
                    "stopReason": "toolUse",
                    "usage": {"input": 100, "output": 10, "cacheRead": 0, "cacheWrite": 0},
                }
            ]
            names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
            assert verb in names
            assert not {"manage_schedule", "task_complete"} & set(names)

    drive(tmp_path, [Reply("Working.", [decision("complete")])], scenario)


def test_arguments_come_as_the_model_wrote_them_and_a_refusal_is_read(tmp_path: Path) -> None:
    """Nobody but us checks them."""
    odd: dict[str, Any] = {"decision": "bogus", "surplus": [1, None]}

    async def answers(call: DecisionCall) -> Verdict:
        return Verdict(call.arguments != odd, "evidence-is-missing")

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world, Recording(answers)) as run:
            await run.round(stamped())
            assert [call.arguments for call in run.told.all("decide")] == [odd, decision("fail")[1]]
            assert "evidence-is-missing" in tool_texts(server.requests[1])[0]
            assert run.told.all("settled") == [False]

    drive(tmp_path, [Reply(tools=[("loop_control", odd)]), Reply(tools=[decision("fail")])], scenario)


def test_arguments_that_are_no_json_never_become_a_decision(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.round(stamped())
            assert run.told.all("decide") == []
            assert [data["success"] for data in run.told.events(ev.TOOL_COMPLETE)] == [False]
            assert len(server.requests) == 2

    torn = Reply(tools=[decision("complete")], raw_arguments='{"decision": "com')
    drive(tmp_path, [torn, Reply("I could not.")], scenario)


def test_the_decision_of_a_sub_agent_is_refused_with_a_reason(tmp_path: Path) -> None:
    """Its calls are counted apart; the main agent decides afterwards."""

    def rule(body: Body) -> Reply | None:
        if "SUBTASK" not in heard(body)[0]:
            return None
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        return Reply(tools=[decision("complete")]) if answered == 0 else Reply("The helper is done.")

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world, Recording(judged)) as run:
            await run.round(stamped())
            assert [call.arguments for call in run.told.all("decide")] == [decision("continue")[1]]
            assert "only the main agent decides" in tool_texts(server.requests[2])[0]
            assert len(run.told.events(ev.TURN_START)) == 2
            theirs = [(agent, kind) for agent, kind, _ in run.told.all("emit_of")]
            assert [kind for _, kind in theirs].count(ev.TURN_START) == 2
            assert len({agent for agent, _ in theirs}) == 1
            assert run.told.all("settled") == [False]

    script = [Reply(tools=[task("SUBTASK look")]), Reply(tools=[decision("continue")])]
    drive(tmp_path, script, scenario, rule)


def test_a_mixed_batch_is_carried_out_and_ends(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free()
        async with running(world, told, permissions=FREE) as run:
            told.agent = run.agent
            await run.round(stamped())
            assert (world.work / "made").exists()
            assert len(server.requests) == 1
            assert [data["success"] for data in told.events(ev.TOOL_COMPLETE)] == [True, True]

    drive(tmp_path, [Reply(tools=[shell("sleep 0.3; touch made"), decision("complete")])], scenario)


def test_a_shell_in_the_background_holds_nothing_up_and_starts_a_run_of_its_own(tmp_path: Path) -> None:
    """The end of the iteration is the root `assistant.idle`; the run that follows is told, and decides nothing."""

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free(judged)
        async with running(world, told) as run:
            told.agent = run.agent
            await run.round(stamped())
            assert not told.all("busy")
            (world.work / "built").touch()
            await told.until("busy")
            await told.until("settled", 2)
            assert [call.stamp for call in told.all("decide")] == [STAMP, None]
            assert told.all("settled") == [False, False]
            assert len(told.events(ev.TURN_START)) == len(server.requests) == 4
            await run.round(stamped("[iteration 2] look", 2))
            assert told.all("settled") == [False, False, False]

    script = [
        Reply(tools=[shell(BUILD, mode="async")]),
        Reply(tools=[decision("continue")]),
        Reply(tools=[decision("complete")]),
        Reply("So there is nothing to decide."),
        Reply(tools=[decision("continue")]),
    ]
    drive(tmp_path, script, scenario)


def test_a_prompt_while_copilot_works_by_itself_is_refused_as_busy(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free(judged)
        async with running(world, told) as run:
            told.agent = run.agent
            await run.round(stamped())
            (world.work / "built").touch()
            await told.until("busy")
            outcome = await run.agent.prompt(stamped("[iteration 2] look", 2))
            assert isinstance(outcome, Refused)
            assert outcome.busy
            await asyncio.to_thread(server.wait_for_requests, 3)  # its own request is out: the script's hang is taken
            await run.agent.abort(AbortReason.USER)
            assert await told.until("settled", 2) is True
            await run.round(stamped("[iteration 2] look", 2))
            assert heard(server.requests[-1])[-1] == "[iteration 2] look"

    script = [
        Reply(tools=[shell(BUILD, mode="async")]),
        Reply(tools=[decision("continue")]),
        Reply(hang="headers"),
        Reply(tools=[decision("continue")]),
    ]
    drive(tmp_path, script, scenario)


def test_a_shell_that_never_ends_holds_up_neither_the_next_prompt_nor_the_close(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free()
        async with running(world, told) as run:
            told.agent = run.agent
            await run.round(stamped())
            await run.agent.abort(AbortReason.USER)
            await run.round(said("and?"))
            assert told.all("settled") == [False, False]
            assert told.events(ev.ABORT) == []

    script = [
        Reply(tools=[shell("sleep 300", mode="async")]),
        Reply(tools=[decision("continue")]),
        Reply("Still running."),
    ]
    drive(tmp_path, script, scenario)


@pytest.mark.parametrize(
    ("reply", "until", "doing"),
    [
        (Reply(hang="headers"), Doing.MODEL, "before the first word"),
        (Reply("half", hang="stream"), ev.MESSAGE_DELTA, "in the stream"),
        (Reply(tools=[shell("touch running; sleep 60")]), "running", "in a tool"),
        (Reply(status=429, headers={"retry-after": "50"}), Doing.BACKOFF, "in a retry's wait"),
        (Reply(tools=[shell("sleep 60")]), "ask", "in a question"),
        (Reply(tools=[("ask_user", {"question": "Which?", "choices": ["a", "b"]})]), "ask", "in a dialog"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_an_abort_ends_each_phase(tmp_path: Path, reply: Reply, until: Any, doing: str) -> None:
    """One `abort`, closed turns, one settlement; the next prompt works."""

    async def reached(told: Recording, world: CopilotWorld, server: ModelServer) -> None:
        if until == "running":
            while not (world.work / "running").exists():
                await asyncio.sleep(0.05)
        elif isinstance(until, Doing):
            await told.until_found(lambda: [one for one in told.all("doing") if one is until], str(until))
            await asyncio.to_thread(server.wait_for_requests, 1)
        elif until == "ask":
            await told.until("ask")
        else:
            await told.until_found(lambda: told.events(until), until)

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told: Recording = Free() if until == "running" else Recording()
        async with running(world, told) as run:
            if isinstance(told, Free):
                told.agent = run.agent
            assert await run.agent.prompt(stamped()) == Accepted()
            await reached(told, world, server)
            await run.agent.abort(AbortReason.WATCHDOG)
            assert await told.until("settled") is True
            assert told.events(ev.ABORT) == [{"reason": "watchdog"}]
            turns = len(told.events(ev.TURN_START))
            assert turns == len(told.events(ev.TURN_END))
            # A dialog that the abort closes may be followed by a call before the abort is: told, and ended as well.
            assert 1 <= len(server.requests) <= turns <= (2 if doing == "in a dialog" else 1)
            assert len(told.events(ev.TOOL_START)) == len(told.events(ev.TOOL_COMPLETE))
            assert told.all("doing")[-1] is Doing.NOTHING
            if until == "ask":
                await told.until("ask_over")
            await run.round(said("and now?"))
            assert told.all("settled") == [True, False]

    def thinking(body: Body) -> Reply | None:
        """Whoever is asked with what became of a tool takes its time, as a model does."""
        return Reply(hang="headers") if body["messages"][-1]["role"] == "tool" else None

    drive(tmp_path, [reply, Reply("Here I am.")], scenario, thinking)


def test_task_complete_is_told_and_never_taken_for_a_decision(tmp_path: Path) -> None:
    """X-10. The tool is only offered where a prompt asks for it, and Copilot sends no reminder of its own."""

    def offered(body: Body) -> bool:
        return "task_complete" in [tool["function"]["name"] for tool in body["tools"]]

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world, Recording(judged)) as run:
            await run.round(replace(said("one"), autopilot=True))
            assert run.told.events(ev.SESSION_TASK_COMPLETE) == []
            await run.round(replace(stamped(), autopilot=True))
            assert run.told.events(ev.SESSION_TASK_COMPLETE) == [{"summary": "all done"}]
            await run.round(said("three"))
            assert run.told.all("decide") == []
            assert run.told.all("settled") == [False, False, False]
            assert offered(server.requests[0])
            assert "Autopilot mode is no longer active" in heard(server.requests[-1])[-1]

    script = [Reply("Not yet."), Reply(tools=[("task_complete", {"summary": "all done"})]), Reply("Yes?")]
    drive(tmp_path, script, scenario)


def test_a_large_prompt_with_all_sorts_of_signs_arrives_whole(tmp_path: Path) -> None:
    """The text of an objective in its middle is not touched; only the end of the whole is trimmed."""
    text = "/help\n!ls\n@file #1 " + "çã\u2028🔁 \\n {}\n" * 4000 + "the end"

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.round(stamped(text))
            assert heard(server.requests[0]) == [text]

    drive(tmp_path, [Reply("Read.")], scenario)
