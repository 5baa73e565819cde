"""One prompt on its way through the agent, and the messages that wait for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.core.autopilot import REMINDER, remind
from loopsup.core.model import AbortReason, Stamp
from loopsup.errors import LoopsupError
from loopsup.ports import Origin
from loopsup.wire import events as words

MAX_ANSWER = 1024 * 1024  # characters of an answer shown to who waits for it; the agent's own file has all


@dataclass(slots=True)
class Run:
    """One prompt (or self-started run) from its hand-over to settlement.

    `stop`, `error`, `retry_after_ms`: how its last turn ended.
    `answer`: the last thing the agent said in it; `waiter` gets that when it has settled.
    `reminders`: what is left of an autopilot's (None: not one); `completed`: the model called `task_complete`.
    """

    stamp: Stamp | None = None
    turns: int = 0
    open_turn: str | None = None
    stop: str = "stop"
    error: str | None = None
    retry_after_ms: int | None = None
    aborted: AbortReason | None = None
    abort_asked: int | None = None
    decided: int | None = None
    unsaid: Mapping[str, Any] | None = None
    answer: str = ""
    waiter: asyncio.Future[str] | None = None
    reminders: int | None = None
    completed: bool = False

    @property
    def iteration(self) -> int | None:
        return None if self.stamp is None else self.stamp.iteration


@dataclass(slots=True)
class Message:
    """A user's message on its way. `waiter` is resolved when it has settled; `not_before`: monotonic ms.

    `reminders`: how many an autopilot has left, None for a plain message. `waits_for`: what was told of its wait.
    """

    text: str
    id: str
    waiter: asyncio.Future[str] | None = None
    not_before: int = 0
    origin: Origin = Origin.USER
    reminders: int | None = None
    waits_for: str | None = None


def account(run: Run, kind: str, data: Mapping[str, Any]) -> None:
    if kind == words.TURN_START:
        run.turns += 1
        run.open_turn = str(data.get("turnId"))
    elif kind == words.TURN_END:
        run.open_turn = None
        error = data.get("error", {}) if data.get("stopReason") == "error" else {}
        run.stop = str(data.get("stopReason"))
        run.error = words.bounded(str(error.get("message", ""))) if run.stop == "error" else None
        run.retry_after_ms = error.get("retryAfterMs")
    elif kind == words.ASSISTANT_MESSAGE:
        run.answer = words.bounded(str(data.get("text", "")), MAX_ANSWER) or run.answer
    elif kind == words.SESSION_TASK_COMPLETE:
        run.completed = True
    elif kind == words.SESSION_ERROR:
        run.error = words.bounded(str(data.get("message", "")))  # it goes into the journal and the status


def reminder(run: Run, message_id: str) -> Message | None:
    """The autopilot's next message after `run`, which then waits in its stead; None: it has ended."""
    left = run.reminders
    if left is None:
        return None
    ended_badly = run.error is not None or run.stop == "error"
    if not remind(left, completed=run.completed, error=ended_badly, aborted=run.aborted is not None):
        return None
    waiter, run.waiter = run.waiter, None
    return Message(REMINDER, message_id, waiter, origin=Origin.AUTOPILOT, reminders=left - 1)


def resolve(run: Run) -> None:
    if run.waiter is None or run.waiter.done():
        return
    if run.error is not None:
        run.waiter.set_exception(LoopsupError(f"the agent reported an error: {run.error}"))
    elif run.aborted is not None:
        run.waiter.set_exception(LoopsupError(f"the response was aborted ({run.aborted})"))
    else:
        run.waiter.set_result(run.answer)


def fail(waiter: asyncio.Future[str] | None, error: LoopsupError) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_exception(error)
