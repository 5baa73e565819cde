"""The real Pi, driven by the adapter: decisions, batches, aborts, queues. The model is scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from loopsup.ports import AbortReason, Accepted, DecisionCall, Permissions, Refused, Stamp, Verdict
from tests.support.agent_env import said, stamped
from tests.support.model_server import ModelServer, Reply, bash, decision, user_texts
from tests.support.pi_env import PiWorld, drive, running
from tests.support.recording import Recording

pytestmark = [pytest.mark.pi, pytest.mark.slow]

USAGE = {"input": 100, "output": 10, "cacheRead": 0, "cacheWrite": 0, "costUsd": 0}
STAMP = Stamp("loop", 1, 1)


def verdicts(*answers: Verdict) -> Recording:
    """A supervisor with these answers, in order."""
    left = list(answers)

    async def answer(_: DecisionCall) -> Verdict:
        return left.pop(0)

    return Recording(answer)


def stops(told: Recording) -> list[str]:
    return [data["stopReason"] for data in told.events("assistant.turn_end")]


def results(told: Recording) -> list[tuple[str, bool]]:
    return [(data["toolName"], data["success"]) for data in told.events("tool.execution_complete")]


def balanced(told: Recording, server: ModelServer) -> bool:
    """A-08: one pair of turn events for each LLM call."""
    pairs = [len(told.events("assistant.turn_start")), len(told.events("assistant.turn_end"))]
    return pairs == [len(server.requests)] * 2


def test_an_accepted_decision_ends_the_turn_with_one_llm_call(tmp_path: Path) -> None:
    call = decision("complete")

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            assert await run.agent.prompt(stamped()) == Accepted()
            assert await run.told.until("settled") is False
            assert [c for c in run.told.calls if c[0] != "doing" and "delta" not in str(c[1])] == [
                ("emit", ("assistant.turn_start", {"turnId": "0"})),
                (
                    "emit",
                    (
                        "assistant.message",
                        {
                            "turnId": "0",
                            "text": "Working.",
                            "toolRequests": [{"toolCallId": "call_1_0", "toolName": call[0], "arguments": call[1]}],
                        },
                    ),
                ),
                (
                    "emit",
                    (
                        "tool.execution_start",
                        {"toolCallId": "call_1_0", "toolName": call[0], "arguments": call[1]},
                    ),
                ),
                ("decide", DecisionCall(STAMP, call[1])),
                (
                    "emit",
                    (
                        "tool.execution_complete",
                        {"toolCallId": "call_1_0", "toolName": call[0], "success": True, "result": "recorded"},
                    ),
                ),
                ("emit", ("assistant.turn_end", {"turnId": "0", "stopReason": "toolUse", "usage": USAGE})),
                ("settled", False),
            ]
        assert len(server.requests) == 1
        assert run.told.all("lost") == []

    drive(tmp_path, [Reply("Working.", [call])], scenario)


def test_the_tool_tells_the_model_the_rules(tmp_path: Path) -> None:
    """L-57, L-58, L-59, L-148."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        request = server.requests[0]
        (tool,) = (tool["function"] for tool in request["tools"] if tool["function"]["name"] == "loop_control")
        assert tool["parameters"]["additionalProperties"] is False
        assert sorted(tool["parameters"]["properties"]) == ["decision", "evidence", "nextDelay", "summary"]
        told = str(request["messages"][0]["content"]) + tool["description"]
        for rule in ("last action", "re-evaluate", "must cite observed state", "background process"):
            assert rule in told

    drive(tmp_path, [Reply(tools=[decision("complete")])], scenario)


def test_a_refused_call_is_a_tool_error_and_a_valid_one_may_follow_in_the_same_run(tmp_path: Path) -> None:
    told = verdicts(Verdict(False, "nextDelay must be at least 1m"), Verdict(True, "recorded"))

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world, told) as run:
            await run.agent.prompt(stamped())
            assert await told.until("settled") is False
        assert results(told) == [("loop_control", False), ("loop_control", True)]
        assert told.events("tool.execution_complete")[0]["error"] == "nextDelay must be at least 1m"
        assert balanced(told, server)
        assert len(server.requests) == 2
        assert "must be at least 1m" in str(server.requests[1]["messages"])

    script = [
        Reply(tools=[decision("continue", nextDelay="1s")]),
        Reply(tools=[decision("continue", nextDelay="5m")]),
    ]
    drive(tmp_path, script, scenario)


@pytest.mark.parametrize("order", [0, 1])
def test_a_decision_beside_other_tools_ends_the_turn_after_them(tmp_path: Path, order: int) -> None:
    """D-07: Pi alone would ask the model once more; the end is a decision, not a person's abort."""
    tools = [bash("echo done > made.txt"), decision("complete")]

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            assert await run.told.until("settled") is False
            assert run.told.events("abort") == [{"reason": "decision"}]
            assert stops(run.told) == ["toolUse"]
            assert balanced(run.told, server)
            assert (world.work / "made.txt").read_text() == "done\n"
            assert len(server.requests) == 1
            # The conversation goes on as usual.
            await run.agent.prompt(stamped("[iteration 2]", 2))
            assert await run.told.until("settled", 2) is False
        assert len(server.requests) == 2

    drive(tmp_path, [Reply(tools=tools[::-1] if order else tools), Reply(tools=[decision("complete")])], scenario)


def test_a_second_decision_in_one_message_gets_its_refusal_and_no_further_call(tmp_path: Path) -> None:
    told = verdicts(Verdict(True, "recorded"), Verdict(False, "decision already recorded"))

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world, told) as run:
            await run.agent.prompt(stamped())
            assert await told.until("settled") is False
        assert results(told) == [("loop_control", True), ("loop_control", False)]
        assert len(server.requests) == 1

    drive(tmp_path, [Reply(tools=[decision("complete"), decision("fail")])], scenario)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"decision": "maybe", "summary": "s", "evidence": "e"}, "decision"),
        ({"decision": "complete", "summary": "s"}, "evidence"),
        ({"decision": "complete", "summary": "s", "evidence": "e", "sure": "yes"}, "sure"),
    ],
)
def test_malformed_arguments_are_a_tool_error_without_effect(
    tmp_path: Path, arguments: dict[str, str], words: str
) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            assert await run.told.until("settled") is False
        assert results(run.told) == [("loop_control", False)]
        assert words in run.told.events("tool.execution_complete")[0]["error"]
        assert run.told.all("decide") == []
        assert len(server.requests) == 2

    drive(tmp_path, [Reply(tools=[("loop_control", arguments)]), Reply("I give up.")], scenario)


def test_no_answer_within_five_seconds_is_a_tool_error(tmp_path: Path) -> None:
    async def never(_: DecisionCall) -> Verdict:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world, Recording(never)) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        (failed,) = run.told.events("tool.execution_complete")
        assert failed["error"] == "the supervisor did not answer within 5 s; nothing was recorded"
        assert len(server.requests) == 2

    drive(tmp_path, [Reply(tools=[decision("complete")]), Reply("oh")], scenario)


def test_a_call_outside_an_iteration_carries_no_stamp(tmp_path: Path) -> None:
    """D-08: the supervisor refuses it."""
    told = verdicts(Verdict(False, "there is no iteration"))

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world, told) as run:
            await run.agent.prompt(said("hello"))
            await told.until("settled")
        assert told.all("decide") == [DecisionCall(None, decision("complete")[1])]
        assert results(told) == [("loop_control", False)]

    drive(tmp_path, [Reply(tools=[decision("complete")]), Reply("fine")], scenario)


def test_a_call_made_by_another_tool_is_refused(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension(
            "nested",
            """pi.registerTool({
              name: "nest", label: "n", description: "d", parameters: { type: "object", properties: {} },
              async execute(id: any, p: any, s: any, u: any, ctx: any) {
                const args = { decision: "complete", summary: "s", evidence: "e" };
                const out = await ctx.executeTool("loop_control", args);
                return { content: [{ type: "text", text: JSON.stringify(out) }] }; } });""",
        )
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        assert run.told.all("decide") == []
        assert "must be called directly" in str(run.told.events("tool.execution_complete"))

    drive(tmp_path, [Reply(tools=[("nest", {})]), Reply("fine")], scenario)


def test_an_answer_without_a_decision_settles(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            assert await run.told.until("settled") is False
        assert run.told.names() == ["assistant.turn_start", "assistant.message", "assistant.turn_end", "settled"]
        assert stops(run.told) == ["stop"]

    drive(tmp_path, [Reply("All good, nothing to do.")], scenario)


def test_a_tool_call_makes_two_turns(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        assert run.told.names() == [
            "assistant.turn_start",
            "assistant.message",
            "tool.execution_start",
            "tool.execution_complete",
            "assistant.turn_end",
            "assistant.turn_start",
            "assistant.message",
            "tool.execution_start",
            "tool.execution_complete",
            "assistant.turn_end",
            "settled",
        ]
        assert balanced(run.told, server)
        assert [data["turnId"] for data in run.told.events("assistant.turn_end")] == ["0", "1"]

    drive(tmp_path, [Reply(tools=[bash("ls")]), Reply(tools=[decision("continue")])], scenario)


@pytest.mark.parametrize("where", ["headers", "stream"])
def test_an_abort_ends_a_hanging_request(tmp_path: Path, where: str) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await asyncio.to_thread(server.wait_for_requests, 1)
            if where == "stream":
                await run.told.until_event("assistant.message_delta")
            await run.agent.abort(AbortReason.WATCHDOG)
            assert await run.told.until("settled") is True
            await asyncio.to_thread(server.wait_for_hangups, 1)
            assert run.told.events("abort") == [{"reason": "watchdog"}]
            assert stops(run.told) == ["aborted"]
            assert balanced(run.told, server)
            await run.agent.abort(AbortReason.USER)  # idle: nothing
            assert len(run.told.events("abort")) == 1

    drive(tmp_path, [Reply("half of a", hang=where)], scenario)


def test_an_abort_kills_the_tool_and_adds_no_turn(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            pid = int(await appears(world.work / "pid"))
            assert run.agent.pid is not None
            assert psutil.Process(pid).is_running()
            await run.agent.abort(AbortReason.USER)
            assert await run.told.until("settled") is True
            assert not alive(pid)
            assert results(run.told) == [("bash", False)]
            assert balanced(run.told, server)

    drive(tmp_path, [Reply(tools=[bash("echo $$ > pid.new; mv pid.new pid; sleep 300")])], scenario)


def test_a_busy_pi_refuses_a_prompt_and_keeps_none(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(said("first"))
            await asyncio.to_thread(server.wait_for_requests, 1)
            refused = await run.agent.prompt(stamped("second"))
            assert isinstance(refused, Refused)
            assert refused.busy
            await run.agent.abort(AbortReason.USER)
            await run.told.until("settled")
            assert await run.agent.prompt(stamped("third")) == Accepted()
            assert await run.told.until("settled", 2) is False
        assert user_texts(server.requests[-1]) == ["first", "third"]
        assert run.told.all("decide") == [DecisionCall(STAMP, decision("complete")[1])]

    drive(tmp_path, [Reply(hang="headers"), Reply(tools=[decision("complete")])], scenario)


def test_an_abort_withdraws_what_waits_in_pis_queue(tmp_path: Path) -> None:
    """Pi would keep it and deliver it inside the next prompt's run."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension(
            "queue",
            """const later = async () => pi.sendUserMessage("later", { deliverAs: "followUp" });
            pi.registerCommand("q", { handler: later });""",
        )
        async with running(world) as run:
            await run.agent.prompt(said("first"))
            await asyncio.to_thread(server.wait_for_requests, 1)
            await run.agent.prompt(said("/q"))
            await run.agent.abort(AbortReason.USER)
            await run.told.until("settled")
            await run.agent.prompt(stamped("second"))
            await run.told.until("settled", 2)
        assert user_texts(server.requests[-1]) == ["first", "second"]

    drive(tmp_path, [Reply(hang="headers"), Reply(tools=[decision("complete")])], scenario)


def test_a_run_pi_starts_by_itself_is_told_and_has_no_stamp(tmp_path: Path) -> None:
    told = verdicts(Verdict(False, "no iteration"))

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("own", 'pi.registerCommand("go", { handler: async () => pi.sendUserMessage("by myself") });')
        async with running(world, told) as run:
            assert await run.agent.prompt(said("/go")) == Accepted()
            await told.until_event("assistant.turn_end", 2)
            await told.until_found(lambda: [1] if told.names()[-1] == "settled" else [], "end of the run")
            assert told.names().count("busy") == 1
        assert told.all("decide") == [DecisionCall(None, decision("complete")[1])]

    drive(tmp_path, [Reply(tools=[decision("complete")]), Reply("well")], scenario)


def test_an_input_handler_that_keeps_an_envelope_is_a_refusal(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("keep", 'pi.on("input", async () => ({ action: "handled" }));')
        async with running(world) as run:
            assert isinstance(await run.agent.prompt(stamped()), Refused)
        assert server.requests == []

    drive(tmp_path, [], scenario)


@pytest.mark.parametrize(
    "text",
    [
        "a\u2028b\u2029c\x85d",
        "{} {name} %s %(x)s $HOME `id` \\n \\",
        "ça é o fim, naïve — 日本 \U0001f600",
        "[i] " + "x" * (1024 * 1024),
    ],
    ids=["separators", "formats", "unicode", "1MiB"],
)
def test_a_prompt_reaches_the_model_byte_for_byte(tmp_path: Path, text: str) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            assert await run.agent.prompt(stamped(text)) == Accepted()
            await run.told.until("settled")
        assert user_texts(server.requests[0]) == [text]

    drive(tmp_path, [Reply("ok")], scenario)


def test_a_line_of_many_mebibytes_does_not_stall_the_stream(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            assert await run.told.until("settled") is False
        (done, _) = run.told.events("tool.execution_complete")
        assert done["success"]
        assert len(done["result"]) < 20_000  # bounded in the log
        assert balanced(run.told, server)

    script = [Reply(tools=[bash("seq 1 800000")]), Reply(tools=[decision("complete")])]
    drive(tmp_path, script, scenario)


@pytest.mark.parametrize(
    "permissions",
    [Permissions(deny=("bash",)), Permissions(mode="deny"), Permissions(deny=("bash",), allow_all=True)],
)
def test_a_denied_tool_does_not_run(tmp_path: Path, permissions: Permissions) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world, permissions=permissions) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        assert results(run.told) == [("bash", False), ("loop_control", True)]
        assert "denies the tool bash" in run.told.events("tool.execution_complete")[0]["error"]
        assert not (world.work / "made.txt").exists()

    drive(tmp_path, [Reply(tools=[bash("touch made.txt")]), Reply(tools=[decision("block")])], scenario)


def test_the_token_is_not_in_the_environment_of_tools(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        (done,) = run.told.events("tool.execution_complete")
        assert "PI_SESSION_ID=loop-1" in done["result"]
        assert "LOOPSUP_PI_SETUP" not in done["result"]

    drive(tmp_path, [Reply(tools=[bash("env")]), Reply("ok")], scenario)


async def appears(path: Path) -> str:
    """The content of a file a tool writes (by rename), polled with a deadline."""
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.02)
    return path.read_text()


def alive(pid: int) -> bool:
    """Running, and no zombie of somebody else's."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
