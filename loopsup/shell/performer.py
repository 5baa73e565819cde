"""Performs what the core asks for: one method an effect.

Each effect comes after its journal record. A hand-over whose stamp is no longer the loop's is dropped: a
stop in between has the last word.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, assert_never

from loopsup.core import envelope
from loopsup.core.effects import Announce, Effect, HandOver
from loopsup.core.events import HandoverAccepted, HandoverRefused
from loopsup.core.model import Attention, PromptKind
from loopsup.errors import LoopsupError
from loopsup.ports import Accepted, Handover, Marker, Origin, Prompt, Refused
from loopsup.shell.hook import TERM_GRACE_S, TIMEOUT_S, run_hook
from loopsup.store.config import load_config
from loopsup.store.hooks import find_hook
from loopsup.store.journal import find_record
from loopsup.wire import events as words
from loopsup.wire.attention import attention_bytes, attention_object

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

DRAIN_S = TIMEOUT_S + TERM_GRACE_S + 3.0  # at the close a hook may finish within its own limit


class Performer:
    """Has no state of its own but the hooks that are still running, and what it said last."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._hooks: set[asyncio.Task[None]] = set()
        self._waits = ""  # what was said last about a busy agent

    def perform(self, effect: Effect) -> None:
        match effect:
            case HandOver():
                self._supervisor.spawn(self._hand_over(effect))
            case Announce(attention):
                self._announce(attention)
            case _:
                assert_never(effect)

    async def _hand_over(self, effect: HandOver) -> None:
        supervisor = self._supervisor
        loop = supervisor.loop
        if loop is None or loop.stamp() != effect.stamp or supervisor.closing:
            return
        held_ms = supervisor.host.recovery.held_ms() if effect.kind is PromptKind.AGAIN else None
        if held_ms is not None:
            told = "another session of this account asks first whether the limit is over"
            supervisor.fact(HandoverRefused(effect.stamp, told, busy=True, retry_ms=held_ms))
            return
        words_in, command = language(), supervisor.host.slot.capabilities.shell_tool
        if effect.kind is not PromptKind.REMINDER:
            text, origin = envelope.iteration(loop, supervisor.clock.now(), words_in, command=command), Origin.LOOP
        else:
            text, origin = envelope.reminder(loop, words_in, command=command), Origin.PROTOCOL
        result = await supervisor.host.hand_over(
            Prompt(text, origin, str(uuid.uuid4()), effect.stamp), fresh=effect.kind is PromptKind.ITERATION
        )
        self._conclude(effect, result)

    def _conclude(self, effect: HandOver, result: Handover) -> None:
        supervisor, waited, self._waits = self._supervisor, self._waits, ""
        match result:
            case Accepted():
                supervisor.fact(HandoverAccepted(effect.stamp))
            case Refused(said, busy, retry_ms):
                reason = words.bounded(said)
                told = f"the agent is busy: {reason}" if busy else f"the agent did not take the prompt: {reason}"
                if self._decided(effect):
                    told, busy = "the decision came before the reminder was sent, so none is sent", False
                self._waits = told if busy else ""
                if told != waited:  # a menu may stand there the whole night, and it is asked every second
                    supervisor.publish(words.LOOP_NOTICE, {"message": told}, iteration=effect.stamp.iteration)
                supervisor.fact(HandoverRefused(effect.stamp, reason, busy, retry_ms if busy else None))
            case _:
                pass  # unknown: the host has ended the agent and told so

    def _decided(self, effect: HandOver) -> bool:
        loop = self._supervisor.loop
        flight = None if loop is None or loop.stamp() != effect.stamp else loop.flight
        return flight is not None and flight.decision is not None

    def _announce(self, attention: Attention) -> None:
        """Visible record, status, hook: in this order, after the state is safe (L-129)."""
        supervisor = self._supervisor
        loop = supervisor.loop
        assert loop is not None
        session = supervisor.facts().for_attention()
        event = attention_object(attention, loop.objective, session)
        supervisor.publish(words.LOOP_ATTENTION, event)
        supervisor.spawn(supervisor.host.slot.announce(event))
        supervisor.bus.show_status(supervisor.status())
        self.tell_hook(attention_bytes(attention, loop.objective, session))

    def tell_hook(self, event: bytes) -> asyncio.Task[None]:
        """Start the hook, if there is one, with this on its standard input. Done when the hook is."""
        task = self._supervisor.spawn(self._hook(event))
        self._hooks.add(task)
        task.add_done_callback(self._hooks.discard)
        return task

    async def _hook(self, event: bytes) -> None:
        supervisor = self._supervisor
        hook = find_hook()
        if hook.problem is not None:
            supervisor.publish(words.LOOP_HOOK, {"path": hook.path or "", "error": hook.problem, "durationMs": 0})
        if hook.path is None:
            return
        result = await run_hook(hook.path, event, env=os.environ, clock=supervisor.clock)
        supervisor.publish(words.LOOP_HOOK, result.data())
        supervisor.log(result.describe())

    def branch(self, marker: Marker | None) -> None:
        """The conversation stands on another branch: its loop is the one marked there (L-108)."""
        supervisor = self._supervisor
        if marker is None:
            supervisor.moved_to(None)
            supervisor.book.moved(None)
            return
        try:
            record = find_record(supervisor.folder, marker.loop_id, marker.seq)
        except LoopsupError as error:
            supervisor.publish(words.LOOP_NOTICE, {"message": error.message})
            return
        if record is not None:
            supervisor.moved_to(record.loop)
            supervisor.book.moved(marker.seq)
        else:
            told = f"this branch is marked with state {marker.seq} of a loop that is not in this session's journal"
            supervisor.publish(words.LOOP_NOTICE, {"message": told})

    async def drain(self) -> None:
        """Let hooks that were started finish (each has its own limit)."""
        if self._hooks:
            await asyncio.wait(self._hooks, timeout=DRAIN_S)


def language() -> str:
    """Of the messages to the agent; read each time, so that a change is taken up."""
    try:
        return load_config().language
    except LoopsupError:
        return "en"
