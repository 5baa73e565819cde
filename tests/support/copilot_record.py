"""Record the golden transcripts of the real Copilot: `python -m tests.support.copilot_record [name…]`.

Each scenario gives `<name>.jsonl`, the session events the translator knows, made repeatable (no instants, ids,
paths) and without the vendor's prompts, and `<name>.out.jsonl`, what the translator says to it: read it before
committing. With `--translate` only the latter is made anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from loopsup.ports import AbortReason, Verdict
from loopsup_copilot.agent import CopilotAgent
from loopsup_copilot.translate import KNOWN, Now, Output, RunSettled, Translator
from loopsup_copilot.voice import Emit
from tests.support.agent_env import stamped
from tests.support.copilot_env import CopilotWorld, drive, heard, shell, task
from tests.support.model_server import Body, ModelServer, Reply, decision
from tests.support.recording import Recording

GOLDEN = Path(__file__).parent.parent / "adapters" / "golden" / "copilot"
# What the translator reads of an event; the rest is not recorded.
KEPT = {
    "aborted", "arguments", "cacheReadTokens", "cacheWriteTokens", "content", "data", "deltaContent", "delivery",
    "error", "errorMessage", "errorType", "finishReason", "inputDelta", "inputTokens", "kind", "message", "name",
    "outputTokens", "reason", "result", "source", "statusCode", "success", "summary", "toolCallId", "toolName",
    "toolRequests", "turnId", "type", "agentId", "ephemeral",
}  # fmt: skip
AGENT = "sub-agent-1"

Act = Callable[[CopilotAgent, Recording], Awaitable[None]]


async def settle(agent: CopilotAgent, told: Recording) -> None:
    await agent.prompt(stamped())
    while not told.all("settled"):
        await asyncio.sleep(0.05)  # only a recording may sleep
        for asked in told.all("ask"):
            await agent.answer(asked.id, True, "")


async def settle_twice(agent: CopilotAgent, told: Recording) -> None:
    await settle(agent, told)
    await told.until("settled", 2)


async def denied(agent: CopilotAgent, told: Recording) -> None:
    await agent.prompt(stamped())
    await agent.answer((await told.until("ask")).id, False, "No person answered.")
    await told.until("settled")


def aborted_at(kind: str) -> Act:
    async def act(agent: CopilotAgent, told: Recording) -> None:
        await agent.prompt(stamped())
        await told.until_event(kind)
        for asked in told.all("ask"):
            await agent.answer(asked.id, True, "")
        await asyncio.sleep(0.7)
        await agent.abort(AbortReason.USER)
        await told.until("settled")

    return act


def helper(body: Body) -> Reply | None:
    """The sub-agent's replies: it tries to decide, is refused, and ends."""
    if "SUBTASK" not in heard(body)[0]:
        return None
    answered = sum(message["role"] == "assistant" for message in body["messages"])
    return Reply(tools=[decision("complete")]) if answered == 0 else Reply("The helper is done.")


SCENARIOS: dict[str, tuple[list[Reply], Act]] = {
    "decision": ([Reply("Working.", [decision("complete")])], settle),
    "mixed_batch": ([Reply(tools=[shell("echo hi"), decision("complete")])], settle),
    "two_turns": ([Reply(tools=[shell("echo hi")]), Reply("Nothing to report.")], settle),
    "retry": ([Reply(status=429, headers={"retry-after": "1"}), Reply(tools=[decision("continue")])], settle),
    "failed": ([Reply(status=400, error="no such model")], settle),
    "length": ([Reply("a long stor", finish="length"), Reply("y.")], settle),
    "empty": ([Reply()], settle),
    "cut": ([Reply("half", cut=True), Reply("whole")], settle),
    "denied": ([Reply(tools=[shell("touch x")]), Reply("I may not.")], denied),
    "abort_in_tool": ([Reply(tools=[shell("sleep 60")])], aborted_at("tool.execution_start")),
    "abort_in_stream": ([Reply("half", hang="stream")], aborted_at("assistant.message_delta")),
    "sub_agent": ([Reply(tools=[task("SUBTASK look")]), Reply(tools=[decision("complete")])], settle),
    "self_started": (
        [
            Reply(tools=[shell("sleep 1; echo late", mode="async")]),
            Reply(tools=[decision("continue")]),
            Reply("I have seen that it ended."),
        ],
        settle_twice,
    ),
}


def normalised(record: Any, root: str) -> Any:
    """Without what differs from run to run."""
    if isinstance(record, dict):
        return {key: AGENT if key == "agentId" else _value(key, value, root) for key, value in record.items()}
    if isinstance(record, list):
        return [normalised(value, root) for value in record]
    return record.replace(root, "/root") if isinstance(record, str) else record


def _value(key: str, value: Any, root: str) -> Any:
    """Arguments are the script's own, whatever their names."""
    if key == "arguments" or not isinstance(value, dict):
        return normalised(value, root)
    return normalised({name: part for name, part in value.items() if name in KEPT}, root)


def as_row(output: Output) -> list[Any]:
    """An output as JSON."""
    match output:
        case Emit(kind, data, agent_id):
            return ["emit", kind, data] if agent_id is None else ["emit", kind, data, agent_id]
        case Now(doing):
            return ["doing", doing.value]
        case RunSettled(aborted):
            return ["settled", aborted]
        case _:
            return [type(output).__name__]


def translated(lines: list[str]) -> list[list[Any]]:
    translator = Translator()
    return [as_row(output) for line in lines for output in translator.feed(json.loads(line))]


def record(name: str) -> None:
    script, act = SCENARIOS[name]
    raw: list[dict[str, Any]] = []

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        class Listening(CopilotAgent):
            def _on_event(self, event: Any) -> None:
                if event.type.value in KNOWN:
                    raw.append(event.to_dict())
                super()._on_event(event)

        async def accept(_: Any) -> Verdict:
            return Verdict(True, "recorded")

        told = Recording(accept)
        agent = Listening(world.launch([]), told)
        await agent.start()
        try:
            await act(agent, told)
        finally:
            await agent.close()

    with tempfile.TemporaryDirectory() as root:
        drive(Path(root), script, scenario, helper)
        kept = [{key: value for key, value in event.items() if key in KEPT} for event in raw]
        lines = [json.dumps(normalised(event, root)) for event in kept]
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def expect(name: str) -> None:
    lines = (GOLDEN / f"{name}.jsonl").read_text().split("\n")[:-1]
    (GOLDEN / f"{name}.out.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in translated(lines)))


if __name__ == "__main__":
    again = "--translate" not in sys.argv
    for wanted in [arg for arg in sys.argv[1:] if arg != "--translate"] or SCENARIOS:
        if again:
            record(wanted)
        expect(wanted)
