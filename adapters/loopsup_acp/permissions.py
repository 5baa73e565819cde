"""Permission requests of the agent: its own words to a person, the answer as one of its options.

Our own tool is never asked about: it changes nothing, and a loop whose decisions wait for a person is none. It
is recognised by its whole name, as each agent writes it, and by its arguments, so that no command that merely
mentions it passes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from loopsup.ports import AgentEvents, Question
from loopsup_acp.translate import Tool, named

CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}
MAX_ARGUMENTS = 2000  # characters of a tool's arguments shown in a question

_OURS = re.compile(
    r"(?:mcp__loopsup__|mcp_loopsup_|mcp\.loopsup\.|loopsup_|Tool: loopsup/)?loop_control(?: \(loopsup MCP Server\))?"
)
_ARGUMENTS = {"decision", "summary", "evidence", "nextDelay", "server", "tool", "arguments"}


class Questions:
    """Those that wait for an answer. The supervisor's policy, a person or its time-out answers."""

    def __init__(self, events: AgentEvents) -> None:
        self._events = events
        self._pending: dict[str, asyncio.Future[bool]] = {}
        self._count = 0

    async def ask(self, call: Mapping[str, Any], tool: Tool, options: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The result of a permission request for `call`; `tool` is all that is known of it."""
        if is_ours(call) and (found := choose(options, allow=True)) is not None:
            return found
        self._count += 1
        identity = f"p{self._count}"
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending[identity] = answer
        self._events.ask(Question(identity, "permission", tool.kind, describe(tool)))
        try:
            allow = await answer
        except asyncio.CancelledError:
            if not answer.cancelled():
                raise  # the connection is closed
            return CANCELLED
        finally:
            self._pending.pop(identity, None)
        return choose(options, allow=allow) or CANCELLED

    def answer(self, identity: str, allow: bool) -> None:
        """An unknown or answered one is left alone."""
        waiting = self._pending.pop(identity, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(allow)

    def cancel(self, outcome: str) -> None:
        """None of them will be answered any more."""
        for identity, waiting in list(self._pending.items()):
            del self._pending[identity]
            self._events.ask_over(identity, outcome)
            waiting.cancel()


def is_ours(call: Mapping[str, Any]) -> bool:
    """Whether this asks for `loop_control` and nothing else. Only the request itself counts."""
    arguments = call.get("rawInput") or {}
    if not isinstance(arguments, Mapping) or not set(arguments) <= _ARGUMENTS:
        return False
    return _OURS.fullmatch(named(call) or str(call.get("title"))) is not None


def choose(options: Sequence[Mapping[str, Any]], *, allow: bool) -> dict[str, Any] | None:
    """This once, if the agent offers that; a lasting answer only where there is no other."""
    verb = "allow" if allow else "reject"
    for kind in (f"{verb}_once", f"{verb}_always"):
        for option in options:
            if option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return None


def describe(tool: Tool) -> str:
    """What a person is asked, in the agent's words."""
    arguments = json.dumps(tool.arguments, ensure_ascii=False) if tool.arguments else ""
    if len(arguments) > MAX_ARGUMENTS:
        arguments = f"{arguments[:MAX_ARGUMENTS]}…"
    return " ".join(part for part in (tool.title or tool.name, arguments) if part)
