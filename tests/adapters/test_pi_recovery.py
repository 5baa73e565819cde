"""The real Pi where an interrupted response goes on: what it asks, what it then sends, what stays in its file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loopsup.core.classify import Kind
from loopsup.ports import AbortReason, Accepted, Boundary, Interruption, Plan
from tests.support.agent_env import stamped
from tests.support.model_server import Body, ModelServer, Reply, bash, decision
from tests.support.pi_env import PiWorld, Run, drive, running
from tests.support.recording import Recording

pytestmark = [pytest.mark.pi, pytest.mark.slow]

Plans = Callable[[Interruption], Awaitable[Plan]]
GO_ON = Plan(True, True, kind=Kind.LENGTH, attempt=1, wait_ms=7)
CUT = Reply("a long stor", finish="length", output_tokens=4096)
DONE = Reply(tools=[decision("complete")])
NOTE = """
  const parameters = { type: "object", properties: {} };
  pi.registerTool({ name: "note", label: "note", description: "take a note", parameters,
    async execute() { return { content: [{ type: "text", text: "noted" }], details: {}, terminate: true }; } });
"""


interruption = partial(Interruption, provider="fake")


def plans(told: Recording, *answers: Plan) -> list[Interruption]:
    """Answer in order, then leave everything; the questions."""
    asked: list[Interruption] = []

    async def answer(turn: Interruption) -> Plan:
        asked.append(turn)
        return answers[len(asked) - 1] if len(asked) <= len(answers) else Plan()

    told.plans = answer
    return asked


def drive_run(
    root: Path,
    script: list[Reply],
    scenario: Callable[[Run, ModelServer], Awaitable[None]],
    *,
    extension: str | None = None,
    **settings: Any,
) -> list[Body]:
    """A run from its prompt; the requests."""
    requests: list[Body] = []

    async def whole(world: PiWorld, server: ModelServer) -> None:
        if extension is not None:
            world.extension("mine", extension)
        async with running(world) as run:
            await scenario(run, server)
        requests.extend(server.requests)

    drive(root, script, whole, **settings)
    return requests


def play(root: Path, script: list[Reply], *answers: Plan, **named: Any) -> tuple[list[Interruption], list[Body], Run]:
    """One iteration to its settlement."""
    out: list[Any] = []

    async def scenario(run: Run, _: ModelServer) -> None:
        out.append(plans(run.told, *answers))
        assert await run.agent.prompt(stamped()) == Accepted()
        await run.told.until("settled")
        out.append(run)

    requests = drive_run(root, script, scenario, **named)
    asked, run = out
    assert run.told.all("settled") == [False]
    assert len(run.told.events("assistant.turn_start")) == len(run.told.events("assistant.turn_end")) == len(requests)
    return asked, requests, run


def messages(body: Body) -> list[Any]:
    return [{key: value for key, value in m.items() if key != "cache_control"} for m in body["messages"]]


def entries(run: Run) -> list[Any]:
    assert run.conversation.file is not None
    return [json.loads(line) for line in run.conversation.file.read_text().splitlines()]


def test_left_alone_the_output_cap_ends_the_run_after_one_request(tmp_path: Path) -> None:
    """Case 142: the baseline."""
    asked, requests, run = play(tmp_path, [CUT])
    assert asked == [
        interruption(Boundary.TURN, "length"),
        interruption(Boundary.SETTLE, "length"),
    ]
    assert len(requests) == 1
    assert not [entry for entry in entries(run) if entry["type"] in ("context_edit", "custom_message")]


def test_the_same_request_goes_out_again_without_the_partial_answer(tmp_path: Path) -> None:
    """Case 141, C-19..C-23: nothing is injected; the file keeps what was cut off and its usage."""
    asked, requests, run = play(tmp_path, [CUT, DONE], GO_ON)
    assert len(asked) == 1
    assert len(requests) == 2
    assert messages(requests[1]) == messages(requests[0])
    written = entries(run)
    (cut,) = [e for e in written if e["type"] == "message" and e["message"].get("stopReason") == "length"]
    assert cut["message"]["content"][0]["text"] == "a long stor"
    assert cut["message"]["usage"]["output"] == 4096
    assert [e["targetId"] for e in written if e["type"] == "context_edit"] == [cut["id"]]
    (record,) = [e for e in written if e.get("customType") == "loopsup-recovery"]
    assert (record["type"], record["data"]) == ("custom", {"v": 1, "kind": "length", "attempt": 1, "waitMs": 7})
    assert not [e for e in written if e["type"] == "custom_message"]


def test_a_cut_off_tool_call_is_neither_executed_nor_repeated_to_the_model(tmp_path: Path) -> None:
    """Case 143, C-25."""
    cut = Reply(tools=[bash("touch TRUNCATED")], finish="length", output_tokens=4096)
    asked, requests, _ = play(tmp_path, [cut, DONE], Plan(omit=True))
    assert asked == [interruption(Boundary.TURN, "length", tail=("bash",), natural=True)]
    assert messages(requests[1]) == messages(requests[0])
    assert not (tmp_path / "work" / "TRUNCATED").exists()
    assert "TRUNCATED" not in json.dumps(requests)


def test_what_was_done_before_stays(tmp_path: Path) -> None:
    """C-24."""
    script = [Reply("Looking.", [bash("echo RESULT >> ran.txt; cat ran.txt")]), CUT, DONE]
    _, requests, _ = play(tmp_path, script, GO_ON)
    assert messages(requests[2]) == messages(requests[1])
    assert [m["role"] for m in requests[2]["messages"]] == ["system", "user", "assistant", "tool"]
    assert (tmp_path / "work" / "ran.txt").read_text() == "RESULT\n"


def test_a_cut_stream_goes_on_after_pis_own_retries(tmp_path: Path) -> None:
    """Case 147: N = 1, S = 1, a persistent error: four requests."""
    broken = Reply("half of", cut=True)
    omit = Plan(omit=True, kind=Kind.STREAM)
    answers = (omit, omit, Plan(True, True, kind=Kind.STREAM, attempt=1), omit, omit, Plan(True))
    asked, requests, run = play(
        tmp_path, [broken] * 4, *answers, retry={"baseDelayMs": 20, "maxRetries": 1, "enabled": True}
    )
    assert [turn.boundary for turn in asked] == [Boundary.TURN, Boundary.TURN, Boundary.SETTLE] * 2
    assert {turn.error for turn in asked} == {"Stream ended without finish_reason"}
    assert all(turn.runnable and not turn.natural for turn in asked)
    assert all(messages(body) == messages(requests[0]) for body in requests)
    assert len(run.told.events("session.error")) == 1


def test_an_empty_answer_goes_on(tmp_path: Path) -> None:
    """Case 157."""
    script = [Reply(), Reply("  \n"), DONE]
    asked, requests, _ = play(tmp_path, script, GO_ON, GO_ON)
    assert asked == [interruption(Boundary.SETTLE, "stop", substance=False)] * 2
    assert [messages(body) for body in requests] == [messages(requests[0])] * 3


def test_a_final_answer_is_asked_about_and_respected(tmp_path: Path) -> None:
    """Case 158."""
    asked, requests, _ = play(tmp_path, [Reply("I need a human.")])
    assert asked == [interruption(Boundary.SETTLE, "stop")]
    assert len(requests) == 1


def test_a_tool_tail_goes_on_with_its_results(tmp_path: Path) -> None:
    """Case 159."""
    script = [Reply("Noting.", [("note", {})]), DONE]
    asked, requests, run = play(tmp_path, script, Plan(False, True, kind=Kind.TOOL_TAIL, attempt=1), extension=NOTE)
    assert asked == [interruption(Boundary.SETTLE, "toolUse", tail=("note",))]
    assert len(run.told.events("tool.execution_start")) == 2
    assert messages(requests[1])[:2] == messages(requests[0])
    assert [m["role"] for m in requests[1]["messages"][2:]] == ["assistant", "tool"]


def test_after_its_decision_nothing_is_asked(tmp_path: Path) -> None:
    """X-01."""
    asked, requests, _ = play(tmp_path, [DONE])
    assert (asked, len(requests)) == ([], 1)


def test_an_overflow_is_left_to_pi(tmp_path: Path) -> None:
    full = Reply("", finish="length", input_tokens=128_000, output_tokens=0)
    asked, _, _ = play(tmp_path, [full])
    assert asked[0].overflow


@pytest.mark.parametrize("how", ["user", "pi"])
def test_an_abort_ends_the_wait(tmp_path: Path, how: str) -> None:
    """C-67: whether it comes from outside or from something inside Pi."""
    over = asyncio.Event()

    async def for_ever(turn: Interruption) -> Plan:
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    async def scenario(run: Run, server: ModelServer) -> None:
        run.told.plans = for_ever
        await run.agent.prompt(stamped())
        await run.told.until("interrupted")
        assert await run.told.until_event("assistant.turn_end") is not None  # told before the wait
        if how == "user":
            await run.agent.abort(AbortReason.USER)
        else:
            await run.agent._rpc.tell({"type": "abort"})
        assert await run.told.until("settled") is True
        await asyncio.wait_for(over.wait(), 60)
        assert run.told.events("abort") == [{"reason": "user"}]

    requests = drive_run(tmp_path, [Reply(status=429, error="Try again in 300 min")], scenario)
    assert len(requests) == 1


def test_input_inside_pi_ends_the_wait_within_a_second(tmp_path: Path) -> None:
    """C-14."""

    async def first_for_ever(turn: Interruption) -> Plan:
        if run_told[0].all("interrupted") == [turn]:
            await asyncio.Event().wait()
        return Plan()

    run_told: list[Recording] = []

    async def scenario(run: Run, server: ModelServer) -> None:
        run_told.append(run.told)
        run.told.plans = first_for_ever
        await run.agent.prompt(stamped())
        await run.told.until("interrupted")
        began = asyncio.get_running_loop().time()
        await run.agent._rpc.tell({"type": "steer", "message": "HURRY"})
        assert await run.told.until("settled") is False
        assert asyncio.get_running_loop().time() - began < 30  # without it: for ever

    requests = drive_run(
        tmp_path, [Reply(status=400, error="usage limit reached"), Reply("ok")], scenario, retry={"enabled": False}
    )
    assert "HURRY" in json.dumps(requests[1])


def test_without_a_supervisor_nothing_is_done(tmp_path: Path) -> None:
    """The socket breaks in the middle of the wait: the run settles by itself."""

    async def for_ever(turn: Interruption) -> Plan:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario(run: Run, server: ModelServer) -> None:
        run.told.plans = for_ever
        await run.agent.prompt(stamped())
        await run.told.until("interrupted")
        await run.agent._extension.link.close()
        assert await run.told.until("settled") is False

    assert len(drive_run(tmp_path, [CUT], scenario)) == 1


def test_drafts_of_others_are_kept(tmp_path: Path) -> None:
    """Case 215, C-09, C-68."""
    other = """
      const draft = { type: "custom", customType: "theirs", data: 1 };
      pi.on("turn_end", (event: any) => ({ entries: [...event.entries, draft] }));
    """
    _, requests, run = play(tmp_path, [CUT, DONE], GO_ON, extension=other)
    assert len(requests) == 2
    written = [e.get("customType") or e["type"] for e in entries(run) if e["type"] in ("custom", "context_edit")]
    assert sorted(written) == ["context_edit", "loopsup-recovery", "theirs", "theirs"]
