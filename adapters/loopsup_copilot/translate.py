"""Copilot's session events, one by one, into the event vocabulary: a pure state machine.

Rules: no I/O, no clock; an event of an unknown or malformed shape changes nothing. Events with an `agentId`
are a sub-agent's: they have turns of their own and never start or settle anything. The root
`assistant.idle` is the only end of a run (`session.idle` waits for background shells, possibly for ever).
"""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.ports import Doing
from loopsup.wire import events as ev
from loopsup_copilot.shapes import as_object
from loopsup_copilot.voice import HEARD, Emit, Record, Voice


@dataclass(frozen=True, slots=True)
class Now:
    """What Copilot is busy with from here on."""

    doing: Doing


@dataclass(frozen=True, slots=True)
class PromptBegun:
    """Copilot has begun with the message that was sent to it."""


@dataclass(frozen=True, slots=True)
class Working:
    """A turn begins: of the prompt Copilot has begun with, else of its own (a background shell has ended)."""


@dataclass(frozen=True, slots=True)
class RunSettled:
    """Nothing automatic is left. `aborted`: ended from outside."""

    aborted: bool


Output = Emit | Now | PromptBegun | Working | RunSettled


class Translator:
    """Feed it every event of the session (as JSON); it gives what to tell, in order."""

    def __init__(self) -> None:
        self._root = Voice(None)
        self._others: dict[str, Voice] = {}
        self._aborted = False
        self._doing = Doing.NOTHING

    def feed(self, record: Record) -> list[Output]:
        """What this event means."""
        kind, data = str(record.get("type")), as_object(record.get("data"))
        agent_id = record.get("agentId")
        if isinstance(agent_id, str) and agent_id:
            return [*self._of_another(agent_id, kind, data)]
        handler = _ROOT.get(kind)
        return [*self._root.hear(kind, data)] if handler is None else handler(self, data)

    def lost(self) -> list[Output]:
        """The stream is over: what was begun is closed, with what is known. There is no settlement."""
        voices = [*self._others.values(), self._root]
        self._others.clear()
        return [*(one for voice in voices for one in voice.end(aborted=True)), *self._now(Doing.NOTHING)]

    def _of_another(self, agent_id: str, kind: str, data: Record) -> list[Emit]:
        if kind in _ANOTHER_ENDED:
            voice = self._others.pop(agent_id, None)
            return [] if voice is None else voice.end(aborted=self._aborted)
        voice = self._others.setdefault(agent_id, Voice(agent_id))
        return voice.end(aborted=self._aborted) if kind == "assistant.turn_end" else voice.hear(kind, data)

    def _now(self, doing: Doing) -> list[Output]:
        """Told once."""
        if doing is self._doing:
            return []
        self._doing = doing
        return [Now(doing)]

    def _user_message(self, data: Record) -> list[Output]:
        self._aborted = False
        return [] if data.get("source") else [PromptBegun()]

    def _turn_start(self, _: Record) -> list[Output]:
        self._aborted = False
        return [Working()]

    def _turn_end(self, _: Record) -> list[Output]:
        return [*self._root.end(aborted=self._aborted), *self._now(Doing.NOTHING)]

    def _call_start(self, data: Record) -> list[Output]:
        return [Working(), *self._root.hear("model.call_start", data), *self._now(Doing.MODEL)]

    def _call_failure(self, data: Record) -> list[Output]:
        """Perhaps the last attempt; where another follows there is a wait first."""
        return [*self._root.hear("model.call_failure", data), *self._now(Doing.BACKOFF)]

    def _tool_start(self, data: Record) -> list[Output]:
        out = self._root.hear("tool.execution_start", data)
        return [*self._now(Doing.TOOL), *out] if out else []

    def _abort(self, _: Record) -> list[Output]:
        self._aborted = True
        return []

    def _compaction_start(self, _: Record) -> list[Output]:
        """In the background, or between two turns; only there is it what Copilot does."""
        return self._now(Doing.COMPACTION) if self._root.turn is None else []

    def _compaction_end(self, data: Record) -> list[Output]:
        done: list[Output] = [Emit(ev.SESSION_COMPACTION, {})] if data.get("success") is True else []
        return [*done, *(self._now(Doing.NOTHING) if self._doing is Doing.COMPACTION else [])]

    def _task_complete(self, data: Record) -> list[Output]:
        summary = data.get("summary")
        return [Emit(ev.SESSION_TASK_COMPLETE, {"summary": ev.bounded(str(summary))} if summary else {})]

    def _idle(self, data: Record) -> list[Output]:
        aborted = data.get("aborted") is True
        out = [*self._root.end(aborted=aborted), *self._now(Doing.NOTHING)]
        self._aborted = False
        return [*out, RunSettled(aborted)]


_ANOTHER_ENDED = frozenset({"subagent.completed", "subagent.failed"})
_ROOT = {
    "user.message": Translator._user_message,
    "assistant.turn_start": Translator._turn_start,
    "assistant.turn_end": Translator._turn_end,
    "model.call_start": Translator._call_start,
    "model.call_failure": Translator._call_failure,
    "tool.execution_start": Translator._tool_start,
    "abort": Translator._abort,
    "session.compaction_start": Translator._compaction_start,
    "session.compaction_complete": Translator._compaction_end,
    "session.task_complete": Translator._task_complete,
    "assistant.idle": Translator._idle,
}

# The types `feed` knows; the rest of the stream is not worth being converted to JSON.
KNOWN = frozenset(_ROOT) | frozenset(HEARD) | _ANOTHER_ENDED
