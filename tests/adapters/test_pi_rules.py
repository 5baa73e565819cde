"""A stream rule on the real Pi, seen from the adapter: what the next request contains, and that no tool ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import AbortReason, Accepted, Origin, Prompt, Stamp, ToolCall, ToolVerdict
from tests.support.agent_env import said, stamped
from tests.support.model_server import Body, ModelServer, Reply, bash, decision
from tests.support.pi_env import PiWorld, Run, drive, running
from tests.support.recording import Recording

pytestmark = [pytest.mark.slow, pytest.mark.pi]

HOLD_S = 30.0  # the machine may be loaded; what is shown here is not the time


def reminder(*, keep: bool = False) -> Prompt:
    return Prompt("REMINDER", Origin.TTSR, "r1", Stamp("loop", 1, 1), keep=keep)


def told(body: Body) -> list[tuple[str, str]]:
    """The conversation of a request, without the system message."""
    out = []
    for message in body["messages"]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        calls = [call["function"]["name"] for call in message.get("tool_calls") or []]
        if message["role"] != "system":
            out.append((message["role"], " ".join([text, *calls]).strip()))
    return out


async def end_half_way(run: Run, delta: str = "assistant.message_delta") -> None:
    """The first response is ended once it streams."""
    assert await run.agent.prompt(stamped("look")) == Accepted()
    await run.told.until_event(delta)
    await run.agent.abort(AbortReason.TTSR)
    assert await run.told.until("settled") is True


@pytest.mark.parametrize("keep", [False, True])
def test_the_model_tries_again_without_a_user_message_and_the_partial_text_is_gone_or_stays(
    tmp_path: Path, keep: bool
) -> None:
    """T-22, T-23, T-26, and case 125."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await end_half_way(run)
            assert await run.agent.prompt(reminder(keep=keep)) == Accepted()
            assert await run.told.until("settled", 2) is False
            assert run.told.all("busy") == []  # it is our run, not one of Pi's own
            (call,) = run.told.all("decide")
            assert call.stamp == Stamp("loop", 1, 1)
            assert run.told.events("abort") == [{"reason": "ttsr"}]
            assert await run.agent.prompt(said("and now?")) == Accepted()
            await run.told.until("settled", 3)
        partial = [("assistant", "half of")] if keep else []
        again = [("user", "look"), *partial, ("user", "REMINDER")]
        assert told(server.requests[1]) == again
        assert told(server.requests[2])[: len(again)] == again  # and so it stays

    half = Reply("half of", hang="stream")
    drive(tmp_path, [half, Reply(tools=[decision("complete")]), Reply("fine")], scenario)


def test_what_was_cut_off_is_known_after_a_restart(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await end_half_way(run)
            await run.agent.prompt(reminder(keep=True))
            await run.told.until("settled", 2)
            conversation = run.conversation
        async with running(world, resume=conversation) as run:
            await run.agent.prompt(said("and now?"))
            await run.told.until("settled")
        assert told(server.requests[2])[:3] == [("user", "look"), ("assistant", "half of"), ("user", "REMINDER")]

    drive(tmp_path, [Reply("half of", hang="stream"), Reply("better"), Reply("fine")], scenario)


class Guard(Recording):
    """Denies every call with "evil" in it, and says that the response is being ended."""

    run: Run | None = None

    async def tool_call(self, call: ToolCall) -> ToolVerdict:
        await super().tool_call(call)
        if "evil" not in str(call.arguments):
            return ToolVerdict()
        return ToolVerdict(False, "a rule stands against this", ends=True)


@pytest.mark.parametrize("keep", [False, True])
def test_a_held_call_never_runs_and_its_message_is_gone_or_stays(tmp_path: Path, keep: bool) -> None:
    """The whole message was streamed before the call could be checked."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        guard = Guard()
        async with running(world, guard, hold_tools=True, hold_s=HOLD_S) as run:
            await run.agent.prompt(stamped("look"))
            assert await guard.until("settled") is True
            await run.agent.prompt(reminder(keep=keep))
            await guard.until("settled", 2)
        assert not (world.work / "evil").exists()
        assert (world.work / "good").exists()
        assert [call.arguments["command"] for call in guard.all("tool_call")] == ["touch evil", "touch good"]
        if keep:
            (first, cut, result, last) = told(server.requests[1])
            assert (first, cut, last) == (("user", "look"), ("assistant", "I do bash"), ("user", "REMINDER"))
            assert result[0] == "tool"
        else:
            assert told(server.requests[1]) == [("user", "look"), ("user", "REMINDER")]

    script = [Reply("I do", tools=[bash("touch evil")]), Reply(tools=[bash("touch good")]), Reply("done")]
    drive(tmp_path, script, scenario)


def test_a_call_is_asked_about_after_everything_that_was_streamed_before_it(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        guard = Guard()
        async with running(world, guard, hold_tools=True, hold_s=HOLD_S) as run:
            await run.agent.prompt(said("look"))
            await guard.until("settled")
        names = [name if name != "emit" else value[0] for name, value in guard.calls]
        assert names.index("tool_call") > names.index("assistant.message")
        deltas = guard.events("assistant.tool_call_delta")
        assert {(data["toolCallId"], data["toolName"]) for data in deltas} == {("call_1_0", "bash")}

    drive(tmp_path, [Reply("first " * 200, tools=[bash("true")], chunk=5), Reply("done")], scenario)


def test_an_unanswered_check_denies_the_call_with_a_reason(tmp_path: Path) -> None:
    class Silent(Recording):
        async def tool_call(self, call: ToolCall) -> ToolVerdict:
            await super().tool_call(call)
            await self.until("settled")  # longer than anybody waits
            return ToolVerdict()

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        silent = Silent()
        async with running(world, silent, hold_tools=True) as run:
            await run.agent.prompt(said("look"))
            await silent.until("settled")
        assert not (world.work / "evil").exists()
        (done,) = silent.events("tool.execution_complete")
        assert "could not check this call within 250 ms" in done["error"]

    drive(tmp_path, [Reply(tools=[bash("touch evil")]), Reply("done")], scenario)


def test_without_rules_no_call_is_asked_about(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(said("look"))
            await run.told.until("settled")
            calls: list[Any] = run.told.all("tool_call")
        assert (calls, (world.work / "good").exists()) == ([], True)

    drive(tmp_path, [Reply(tools=[bash("touch good")]), Reply("done")], scenario)
