"""What Copilot asks a person: permissions (by the id of the request) and the dialogs of its `ask_user` tool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loopsup.ports import AgentEvents, Question
from loopsup_copilot.shapes import as_object

NOBODY = "Nobody was there to answer."
MAX_DIFF = 2000  # characters of a change shown in a question

Record = Mapping[str, Any]
# Answers a permission request: its id, allowed or not, words for the model.
Decide = Callable[[str, bool, str], Awaitable[None]]


def permission(data: Record, tool: str | None) -> Question:
    """A `permission.requested` as a question. `tool`: the name the model knows it by."""
    request = as_object(data.get("permissionRequest"))
    kind = str(request.get("kind"))
    named = tool or str(request.get("toolName") or kind)
    if kind == "mcp" and tool is None:
        named = f"{request.get('serverName')}-{request.get('toolName')}"
    return Question(str(data.get("requestId")), "permission", named, _text(kind, request))


def _text(kind: str, request: Record) -> str:
    """In Copilot's words: what it is about first, why it wants it after."""
    about = {
        "shell": request.get("fullCommandText"),
        "write": request.get("fileName"),
        "read": request.get("path"),
        "url": request.get("url"),
        "mcp": f"{request.get('serverName')}: {request.get('toolTitle') or request.get('toolName')}",
        "custom-tool": request.get("toolDescription"),
        "memory": request.get("fact"),
        "hook": request.get("hookMessage"),
    }.get(kind)
    why = request.get("intention") or request.get("reason")
    parts = [str(part) for part in (about, f"({why})" if why and why != about else None) if part]
    if kind == "write" and request.get("diff"):
        parts.append(f"\n{str(request['diff']).strip()[:MAX_DIFF]}")
    if kind in ("mcp", "custom-tool") and request.get("args") is not None:
        parts.append(str(request["args"]))
    return f"{kind}: {' '.join(parts)}" if parts else kind


class Questions:
    """The questions pending."""

    def __init__(self, events: AgentEvents, decide: Decide) -> None:
        self._events = events
        self._decide = decide
        self._permissions: set[str] = set()
        self._dialogs: dict[str, tuple[asyncio.Future[str], list[str]]] = {}
        self._numbers = 0
        self._names: dict[str, str] = {}  # of the tools under way, by the id of the call

    def heard(self, kind: str, data: Record) -> None:
        """An event of the session that has to do with permissions."""
        match kind:
            case "tool.execution_start":
                self._names[str(data.get("toolCallId"))] = str(data.get("toolName"))
            case "tool.execution_complete":
                self._names.pop(str(data.get("toolCallId")), None)
            case "permission.requested" if not data.get("resolvedByHook") and data.get("requestId"):
                call = as_object(data.get("permissionRequest")).get("toolCallId")
                asked = permission(data, self._names.get(str(call)))
                self._permissions.add(asked.id)
                self._events.ask(asked)
            case "permission.completed":
                self._over(str(data.get("requestId")), str(as_object(data.get("result")).get("kind")))

    async def dialog(self, request: Record) -> str:
        """`ask_user`: waits for the answer."""
        self._numbers += 1
        identity = f"dialog-{self._numbers}"
        choices = [str(choice) for choice in request.get("choices") or ()]
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._dialogs[identity] = (done, choices)
        options = f" [{' | '.join(choices)}] (allow picks {choices[0]!r})" if choices else ""
        self._events.ask(Question(identity, "dialog", "ask_user", f"{request.get('question')}{options}"))
        try:
            return await done
        finally:
            self._dialogs.pop(identity, None)

    async def answer(self, identity: str, allow: bool, text: str) -> None:
        """An unknown or answered one is left alone."""
        if identity in self._permissions:
            self._permissions.discard(identity)
            await self._decide(identity, allow, text or NOBODY)
            return
        waiting, choices = self._dialogs.get(identity, (None, []))
        if waiting is not None and not waiting.done():
            waiting.set_result(text or (choices[0] if choices else "yes") if allow else text or NOBODY)

    async def settle(self, outcome: str) -> None:
        """Copilot has settled: a background agent that still asks is not waited for."""
        for identity in sorted(self._permissions):
            self._over(identity, outcome)
            await self._decide(identity, False, NOBODY)
        self.cancel_dialogs(outcome)

    def cancel_dialogs(self, outcome: str) -> None:
        """Copilot does not say that one went away with an abort."""
        for identity, (waiting, _) in list(self._dialogs.items()):
            del self._dialogs[identity]
            if not waiting.done():
                waiting.set_result(NOBODY)
            self._events.ask_over(identity, outcome)

    def gone(self) -> None:
        """Copilot has ended."""
        for identity in sorted(self._permissions):
            self._over(identity, "the agent ended")
        self.cancel_dialogs("the agent ended")

    def _over(self, identity: str, outcome: str) -> None:
        if identity in self._permissions:
            self._permissions.discard(identity)
            self._events.ask_over(identity, outcome)
