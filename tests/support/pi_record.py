"""Record the golden transcripts of the real Pi: `python -m tests.support.pi_record [name…]`.

Each scenario gives `<name>.jsonl`, Pi's stdout made repeatable (no instants, ids, paths; no system prompt,
no tool schemas), and `<name>.out.jsonl`, what the translator says to it: read it before committing. With
`--translate` only the latter is made anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from loopsup.ports import AbortReason
from loopsup_pi.agent import PiAgent
from loopsup_pi.translate import Emit, Now, Output, RunSettled, Translator
from tests.support.agent_env import stamped
from tests.support.model_server import ModelServer, Reply, bash, decision
from tests.support.pi_env import PiWorld, drive
from tests.support.recording import Recording

GOLDEN = Path(__file__).parent.parent / "adapters" / "golden" / "pi"
VOLATILE = {"timestamp", "durationMs", "responseId", "id", "parentId", "messages", "model", "cwd", "delayMs"}
DROPPED = {"response", "entry_appended", "session_info_changed"}

Act = Callable[[PiAgent, Recording], Awaitable[None]]


async def settle(agent: PiAgent, told: Recording) -> None:
    await agent.prompt(stamped())
    await told.until("settled")


async def abort_in_tool(agent: PiAgent, told: Recording) -> None:
    await agent.prompt(stamped())
    await told.until_event("tool.execution_start")
    await asyncio.sleep(0.5)  # the shell is up; only a recording may sleep
    await agent.abort(AbortReason.USER)
    await told.until("settled")


async def abort_in_stream(agent: PiAgent, told: Recording) -> None:
    await agent.prompt(stamped())
    await told.until_event("assistant.message_delta")
    await agent.abort(AbortReason.USER)
    await told.until("settled")


SCENARIOS: dict[str, tuple[list[Reply], Act]] = {
    "decision": ([Reply("Working.", [decision("complete")])], settle),
    "mixed_batch": ([Reply(tools=[bash("echo hi"), decision("complete")])], settle),
    "two_turns": ([Reply(tools=[bash("echo hi")]), Reply("Nothing to report.")], settle),
    "retry": ([Reply(status=429), Reply(tools=[decision("continue")])], settle),
    "failed": ([Reply(status=401, error="invalid api key")], settle),
    "length": ([Reply("a long stor", finish="length", output_tokens=4096)], settle),
    "empty": ([Reply()], settle),
    "abort_in_tool": ([Reply(tools=[bash("sleep 60")])], abort_in_tool),
    "abort_in_stream": ([Reply("half", hang="stream")], abort_in_stream),
    "compaction": ([Reply("x" * 90_000, input_tokens=125_000), Reply("The summary.")], settle),
}


def normalised(record: Any, root: str) -> Any:
    """Without what differs from run to run."""
    if isinstance(record, dict):
        return {key: normalised(value, root) for key, value in record.items() if key not in VOLATILE or _call(value)}
    if isinstance(record, list):
        return [normalised(value, root) for value in record]
    if isinstance(record, str):
        text = record.replace(root, "/root")
        return text if len(text) < 2000 else f"{text[:20]}…"
    return record


def _call(value: Any) -> bool:
    """The id of a tool call is the script's own."""
    return isinstance(value, str) and value.startswith("call_")


def kept(record: dict[str, Any]) -> bool:
    system = isinstance(record.get("message"), dict) and record["message"].get("role") == "system"
    return record.get("type") not in DROPPED and not system


def as_row(output: Output) -> list[Any]:
    """An output as JSON."""
    match output:
        case Emit(kind, data):
            return ["emit", kind, data]
        case Now(doing):
            return ["doing", doing.value]
        case RunSettled(aborted):
            return ["settled", aborted]
        case _:
            return ["started"]


def translated(lines: list[str]) -> list[list[Any]]:
    translator = Translator()
    return [as_row(output) for line in lines for output in translator.feed(json.loads(line))]


def record(name: str) -> None:
    script, act = SCENARIOS[name]
    raw: list[bytes] = []

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        class Listening(PiAgent):
            def _on_line(self, line: bytes) -> None:
                raw.append(line)
                super()._on_line(line)

        told, launch = Recording(), world.launch([])
        agent = Listening(launch, told)
        await agent.start()
        try:
            await act(agent, told)
        finally:
            await agent.close()

    with tempfile.TemporaryDirectory() as root:
        drive(Path(root), script, scenario)
        records = [normalised(obj, root) for obj in map(json.loads, raw) if kept(obj)]
    lines = [json.dumps(obj) for obj in records]
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
