"""Dialogs of the user's own Pi extensions: confirm, select, input, editor. Pi waits for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loopsup.ports import AgentEvents, Question

METHODS = frozenset({"confirm", "select", "input", "editor"})

Record = Mapping[str, Any]


def is_dialog(record: Record) -> bool:
    return record.get("type") == "extension_ui_request" and record.get("method") in METHODS and "id" in record


def question(record: Record) -> Question:
    """What a person is asked, in the extension's words, with what `allow` would answer."""
    parts = [str(record.get("title") or ""), str(record.get("message") or "")]
    match record.get("method"):
        case "select":
            options = _options(record)
            parts.append(f"[{' | '.join(options)}]")
            parts.append(f"(allow picks {options[0]!r})" if options else "")
        case "input":
            parts.append("(allow answers with an empty line)")
        case "editor":
            parts.append("(allow takes the text as it is)")
    return Question(str(record["id"]), "dialog", str(record.get("method")), " ".join(part for part in parts if part))


def response(record: Record, allow: bool, text: str) -> dict[str, Any]:
    """The answer for Pi. Denied is cancelled: the extension sees a dialog that was closed."""
    out: dict[str, Any] = {"type": "extension_ui_response", "id": record["id"]}
    if not allow:
        return {**out, "cancelled": True}
    match record.get("method"):
        case "confirm":
            return {**out, "confirmed": True}
        case "select":
            options = _options(record)
            if not options:
                return {**out, "cancelled": True}
            return {**out, "value": text if text in options else options[0]}
        case "editor":
            return {**out, "value": text or str(record.get("prefill") or "")}
        case _:
            return {**out, "value": text}


def _options(record: Record) -> list[str]:
    return [str(option) for option in record.get("options") or ()]


class Questions:
    """The dialogs that wait for a person. Pi never says that one went away: it times out there, silently."""

    def __init__(self, events: AgentEvents, tell: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._events = events
        self._tell = tell
        self._pending: dict[str, Record] = {}

    def asked(self, record: Record) -> None:
        identity = str(record["id"])
        self._pending[identity] = record
        self._events.ask(question(record))
        if isinstance(timeout := record.get("timeout"), int | float):
            asyncio.get_running_loop().call_later(timeout / 1000, self._over, identity, "timed out in pi")

    def first(self) -> str | None:
        """The text of the oldest one."""
        return next((question(record).text for record in self._pending.values()), None)

    async def answer(self, identity: str, allow: bool, text: str) -> None:
        """An unknown or answered one is left alone."""
        record = self._pending.pop(identity, None)
        if record is not None:
            with contextlib.suppress(ConnectionError):
                await self._tell(response(record, allow, text))

    async def cancel(self) -> None:
        """Close all of them."""
        for identity, record in list(self._pending.items()):
            self._over(identity, "cancelled")
            with contextlib.suppress(ConnectionError):
                await self._tell(response(record, allow=False, text=""))

    def gone(self) -> None:
        """Pi has ended."""
        for identity in list(self._pending):
            self._over(identity, "the agent ended")

    def _over(self, identity: str, outcome: str) -> None:
        if self._pending.pop(identity, None) is not None:
            self._events.ask_over(identity, outcome)
