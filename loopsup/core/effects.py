"""Everything the core can ask for (closed union), and what a step gives back."""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core.events import Event
from loopsup.core.model import Attention, Loop, PromptKind, Stamp


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give the agent the envelope or the reminder of this iteration, now. Not idempotent."""

    stamp: Stamp
    kind: PromptKind


@dataclass(frozen=True, slots=True)
class Announce:
    """Show this attention event, put it in the status, start the hook (in this order)."""

    attention: Attention


Effect = HandOver | Announce


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a command or to a `loop_control` call. Not `ok`: refused, and nothing changed.

    `message` is one sentence for a person (or, for a decision, for the model); `warnings` go beside it.
    `kind` of a refusal: "refused" by the state, "usage" because of its values, "not_found": there is no loop.
    """

    ok: bool
    message: str = ""
    warnings: tuple[str, ...] = ()
    kind: str = "refused"


@dataclass(frozen=True, slots=True)
class Step:
    """The loop after an event. To be journaled when `loop` differs from before, then performed.

    `cause` is the event this very step answers to (set by `advance`): replaying the causes gives the loops.
    """

    loop: Loop | None
    effects: tuple[Effect, ...] = ()
    reply: Reply | None = None
    cause: Event | None = None
