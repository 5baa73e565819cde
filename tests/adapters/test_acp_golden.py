"""What real ACP agents said, recorded, and the events it must become.

`golden/acp/NAME.acp.jsonl` has the lines of the agent as they were (`prompt` marks where one was handed over);
`golden/acp/NAME.events.jsonl` the events of the vocabulary, live-only ones too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopsup_acp.outcome import answered
from loopsup_acp.permissions import describe, is_ours
from loopsup_acp.profiles import KNOWN
from loopsup_acp.translate import Emit, Output, Translator

GOLDEN = Path(__file__).with_name("golden") / "acp"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def replay(agent: str) -> list[dict[str, Any]]:
    """The events, in order."""
    translator, told = Translator(), []
    translator.expect_no_cost_yet()

    def tell(outputs: list[Output]) -> None:
        told.extend({"type": out.kind, "data": dict(out.data)} for out in outputs if isinstance(out, Emit))

    for line in lines(f"{agent}.acp.jsonl"):
        result = line.get("result")
        if "prompt" in line:
            tell(translator.begin())
        elif line.get("method") == "session/update":
            tell(translator.feed(line["params"]["update"]))
        elif line.get("method") == "session/request_permission":
            call = line["params"]["toolCall"]
            tool = translator.tool(call)
            told.append({"type": "asked", "data": {"kind": tool.kind, "text": describe(tool), "ours": is_ours(call)}})
        elif result is not None and "stopReason" in result:
            outcome = answered(result, tokens=KNOWN[agent].tokens)
            tell(translator.end(outcome.reason, error=outcome.error, usage=outcome.usage))
    return told


@pytest.mark.parametrize("agent", ["gemini", "opencode"])
def test_a_recorded_conversation_becomes_these_events(agent: str) -> None:
    assert replay(agent) == lines(f"{agent}.events.jsonl")
