"""`loop_control` as a native tool of Copilot: its words and its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOOL = "loop_control"

DESCRIPTION = (
    "Report the outcome of the present loop iteration to the supervisor. Valid only during a loop iteration, "
    "and exactly once: call it as the very last action, alone. continue: the objective is not reached yet and "
    "it is worth looking again later. complete: the objective is verifiably reached. fail: it has definitely "
    "failed. block: only a person can unblock it. Before it, re-evaluate the objective against the current "
    "state, not against memory of earlier iterations. Do not use continue to poll for a background process "
    "that this session already observes by itself."
)

SUB_AGENT = (
    f"{TOOL} was refused: only the main agent decides about the loop. "
    "Report your result to the agent that started you instead."
)

PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["continue", "complete", "fail", "block"]},
        "summary": {
            "type": "string",
            "description": "What was done and what the state is, in one or two sentences",
        },
        "evidence": {
            "type": "string",
            "description": "Observed state, command run (with its result) or reference consulted",
        },
        "nextDelay": {
            "type": "string",
            "description": "Only with continue and an auto rhythm: when to look again, like 90s, 10m or 1h30m",
        },
    },
    "required": ["decision", "summary", "evidence"],
    "additionalProperties": False,
}
