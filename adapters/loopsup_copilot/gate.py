"""Copilot's hook before each tool: what the configuration denies, and what a stream rule stands against.

What it lets through is asked about (permissions) as ever. Copilot waits for its answer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from loopsup.ports import HOLD_S, AgentEvents, Launch, Permissions, ToolCall
from loopsup_copilot.tool import TOOL

LATE = "loopsup could not check this call within {} ms, so it did not run; call it again."


def hooks(launch: Launch, events: AgentEvents, hold_s: float = HOLD_S) -> dict[str, Any]:
    """The `hooks` of a session; empty where no tool has to wait (`hold_s` at most for its check)."""
    given = launch.permissions
    denies = bool(given.deny) or (given.mode == "deny" and not given.allow_all)
    if not denies and not launch.hold_tools:
        return {}
    return {"on_pre_tool_use": Gate(given, events if launch.hold_tools else None, hold_s)}


class Gate:
    """Called for each tool, also a sub-agent's. The hook does not know the call's id: it gets a number."""

    def __init__(self, permissions: Permissions, events: AgentEvents | None, hold_s: float = HOLD_S) -> None:
        self._permissions = permissions
        self._events = events
        self._hold_s = hold_s
        self._numbers = itertools.count(1)

    async def __call__(self, call: Mapping[str, Any], _invocation: object) -> dict[str, Any] | None:
        name, given = str(call.get("toolName")), self._permissions
        if name == TOOL:
            return None
        only_listed = given.mode == "deny" and not given.allow_all
        if name in given.deny or (only_listed and name not in given.allow):
            return _denied(f"The user's loopsup configuration denies the tool {name}.")
        if self._events is None:
            return None
        held = ToolCall(f"held-{next(self._numbers)}", name, call.get("toolArgs"))
        try:
            verdict = await asyncio.wait_for(self._events.tool_call(held), self._hold_s)
        except TimeoutError:
            return _denied(LATE.format(f"{self._hold_s * 1000:g}"))
        return None if verdict.allowed else _denied(verdict.reason)


def _denied(reason: str) -> dict[str, Any]:
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}
