"""What the scripted demo agent decides, by name."""

from __future__ import annotations

DONE = {"decision": "complete", "summary": "all green", "evidence": "run 42 passed"}
FAIL = {"decision": "fail", "summary": "broken", "evidence": "run 42 failed"}
BLOCK = {"decision": "block", "summary": "no key", "evidence": "401 from the registry"}
ON = {"decision": "continue", "summary": "not yet", "evidence": "run 42 is queued"}


def decide(args: dict[str, str], **more: object) -> dict[str, object]:
    """A behaviour of the demo agent: one turn with this decision."""
    return {"do": "decide", "args": args, **more}
