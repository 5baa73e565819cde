"""`LoopAttentionEventV1`: one JSON shape for the notice, the status and the hook.

Every field is always present except `session.file`, which is absent (not null) when the agent has no file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from loopsup.core.model import Attention
from loopsup.wire.times import instant

VERSION = 1


@dataclass(frozen=True, slots=True)
class AttentionSession:
    """The session as its agent knows it. `file` None: it has no file."""

    id: str
    file: str | None
    cwd: str


def attention_object(attention: Attention, objective: str, session: AttentionSession) -> dict[str, Any]:
    """The event as a JSON object, keys in their documented order."""
    file = {} if session.file is None else {"file": session.file}
    return {
        "version": VERSION,
        "status": attention.status.value,
        "summary": attention.summary,
        "evidence": {"source": attention.source, "text": attention.text},
        "objective": objective,
        "iterationCount": attention.iteration_count,
        "maxIterations": attention.max_iterations,
        "protocolRetryCount": attention.protocol_retry_count,
        "calendarElapsedMs": attention.calendar_elapsed_ms,
        "deadlineRemainingMs": attention.deadline_remaining_ms,
        "session": {"id": session.id, **file, "cwd": session.cwd},
        "endedAt": instant(attention.ended_at),
        "observedAt": instant(attention.observed_at),
    }


def attention_bytes(attention: Attention, objective: str, session: AttentionSession) -> bytes:
    """What a hook reads on its standard input: the object on one line."""
    obj = attention_object(attention, objective, session)
    return json.dumps(obj, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
