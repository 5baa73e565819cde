"""The object of `status --json`, and the rule that it never claims more than somebody can do.

Truth rule: waiting, queued and running are said only while a supervisor lives that can fire. Where none lives the
caller shows `without_owner(loop, now)` instead, which is out of time, too, once its deadline has passed. A loop that
`loopsup tick` drives needs no supervisor to wait: `lastTickAt` says when that last came, `late` that it should have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopsup.core.events import Opened
from loopsup.core.misfire import LATE_MS, Missed, word
from loopsup.core.model import (
    Completed,
    Decision,
    Driver,
    Failed,
    Fixed,
    Intent,
    Loop,
    Moment,
    Paused,
    Policy,
    Queued,
    State,
    Stopped,
    Waiting,
)
from loopsup.core.step import advance
from loopsup.wire.attention import AttentionSession, attention_object
from loopsup.wire.times import instant

VERSION = 1


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What status says of the session itself. `id`: loopsup's; `agent_session_id`: the agent's, None if unknown.

    `last_tick_at`: when `loopsup tick` last looked at the sessions of this machine (wall ms), None: never.
    """

    name: str
    id: str
    agent: str
    agent_session_id: str | None
    file: str | None
    cwd: str
    alive: bool
    responding: bool
    pid: int | None
    clients: int = 0
    problem: str | None = None
    last_tick_at: int | None = None
    parked: bool = False

    def for_attention(self) -> AttentionSession:
        """The session of an attention event: the agent's own id where it has one."""
        return AttentionSession(self.agent_session_id or self.id, self.file, self.cwd)


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question of the agent nobody has answered yet; wall instants in milliseconds."""

    id: str
    kind: str
    tool: str
    text: str
    since: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """The recovery under way. `of` None: no limit; `until`: the wall instant its wait ends, None without one."""

    kind: str
    mode: str
    attempt: int
    of: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class Lost:
    """What a supervisor that died left: its last sign of life (wall ms), and the iteration in flight.

    `delivery`: "sent", so it may have arrived or not, or "accepted"; `decision`: the agent's, accepted already.
    """

    seen_at: int
    iteration: int | None = None
    delivery: str | None = None
    decision: str | None = None


def lost_of(loop: Loop | None, seen_at: int) -> Lost | None:
    """What is known of a loop whose supervisor died under it; None where it had nothing to do."""
    if loop is None or loop.terminal or (isinstance(loop.phase, Paused) and loop.flight is None):
        return None
    flight = loop.flight
    if flight is None and loop.driver is Driver.TICK:
        return None  # nobody has to be there between two ticks
    if flight is None:
        return Lost(seen_at)
    decision = None if flight.decision is None else flight.decision.verb.value
    return Lost(seen_at, flight.iteration, flight.delivery.value, decision)


def status_object(
    session: SessionFacts,
    loop: Loop | None,
    now: Moment,
    *,
    turns: int = 0,
    question: PendingQuestion | None = None,
    recovery: RecoveryStatus | None = None,
    heartbeat: dict[str, Any] | None = None,
    lost: Lost | None = None,
) -> dict[str, Any]:
    """The status object. `turns`: turn pairs of the iteration in flight, not yet in `loop.llm_calls`.

    A session without a heartbeat has no key for it.
    """
    found = {
        "version": VERSION,
        "session": _session(session),
        "loop": None if loop is None else _loop(session, loop, now, turns, question, recovery, lost),
    }
    return found if heartbeat is None else {**found, "heartbeat": heartbeat}


def without_owner(loop: Loop | None, now: Moment) -> Loop | None:
    """The loop as it truly stands while nobody owns it: what the next opening will record (a loss, a deadline)."""
    return advance(loop, Opened(), now)[-1].loop


def _session(session: SessionFacts) -> dict[str, Any]:
    return {
        "name": session.name,
        "id": session.id,
        "agent": session.agent,
        "agentSessionId": session.agent_session_id,
        "file": session.file,
        "cwd": session.cwd,
        "supervisor": {"alive": session.alive, "responding": session.responding, "pid": session.pid},
        "clients": session.clients,
        "problem": session.problem,
        "parked": session.parked,
    }


def _loop(
    session: SessionFacts,
    loop: Loop,
    now: Moment,
    turns: int,
    question: PendingQuestion | None,
    recovery: RecoveryStatus | None,
    lost: Lost | None,
) -> dict[str, Any]:
    policy = loop.policy
    at = _reading(loop, now)
    due = next_due_at(loop)
    attention = loop.last_attention
    return {
        "id": loop.id,
        "objective": loop.objective,
        "state": loop.state.value,
        "pauseReason": loop.phase.reason.value if isinstance(loop.phase, Paused) else None,
        "intent": _intent(loop),
        "late": is_late(loop, now),
        "iterationCount": loop.iteration_count,
        "maxIterations": policy.max_iterations,
        "protocolRetryCount": loop.protocol_retry_count,
        "promptsSent": loop.prompts_sent,
        "llmCalls": loop.llm_calls + turns,
        "rhythm": _rhythm(policy),
        "minDelayMs": policy.min_delay_ms,
        "maxDelayMs": policy.max_delay_ms,
        "forMs": policy.for_ms,
        "misfire": word(policy.misfire),
        "startedAt": instant(loop.started_at),
        "deadlineAt": instant(loop.deadline_at),
        "calendarElapsedMs": max(0, at - loop.started_at),
        "deadlineRemainingMs": max(0, loop.deadline_at - at),
        "nextDueAt": None if due is None else instant(due),
        "driver": loop.driver.value,
        "lastTickAt": _last_tick(session, loop),
        "lastMissed": None if loop.last_missed is None else missed_object(loop.last_missed),
        "lastDecision": None if loop.last_decision is None else _decision(loop.last_decision),
        "question": None if question is None else _question(question),
        "recovery": None if recovery is None else _recovery(recovery),
        "lost": None if lost is None else _lost(lost),
        "lastAttention": (
            None if attention is None else attention_object(attention, loop.objective, session.for_attention())
        ),
    }


def _lost(lost: Lost) -> dict[str, Any]:
    return {
        "lastSeenAt": instant(lost.seen_at),
        "iteration": lost.iteration,
        "delivery": lost.delivery,
        "decision": lost.decision,
    }


def next_due_at(loop: Loop) -> int | None:
    """The wall instant of the next wake, None where none will come before the deadline."""
    match loop.phase:
        case Waiting(due):
            wake = due.wall
        case Queued(due_at):
            wake = due_at
        case _:
            return None
    return wake if wake < loop.deadline_at else None


def is_late(loop: Loop, now: Moment) -> bool:
    """The wake is overdue and was not handed over."""
    due = next_due_at(loop)
    return loop.state in (State.WAITING, State.QUEUED) and due is not None and now.wall - due > LATE_MS


def _last_tick(session: SessionFacts, loop: Loop) -> str | None:
    """Of a loop that depends on it: whether anybody fires it is for the reader to judge."""
    tick = session.last_tick_at if loop.driver is Driver.TICK else None
    return None if tick is None else instant(tick)


def _reading(loop: Loop, now: Moment) -> int:
    """The instant elapsed and remaining are taken at: an ended loop's clock stands."""
    match loop.phase:
        case Completed(ended_at) | Failed(ended_at) | Stopped(ended_at):
            return ended_at
        case _:
            return now.wall


def _intent(loop: Loop) -> str | None:
    match None if loop.flight is None else loop.flight.intent:
        case None:
            return None
        case Intent.STOP:
            return Intent.STOP.value
        case Intent.PAUSE | Intent.FORK:
            return Intent.PAUSE.value


def _rhythm(policy: Policy) -> dict[str, Any]:
    if isinstance(policy.rhythm, Fixed):
        return {"kind": "fixed", "everyMs": policy.rhythm.every_ms}
    return {"kind": "auto", "minDelayMs": policy.min_delay_ms, "maxDelayMs": policy.max_delay_ms}


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "decision": decision.verb.value,
        "summary": decision.summary,
        "evidence": decision.evidence,
        "nextDelayMs": decision.next_delay_ms,
        "iteration": decision.iteration,
        "at": instant(decision.at),
    }


def missed_object(missed: Missed) -> dict[str, Any]:
    """The data of a `loop.misfire` event, and the last missed wake in the status."""
    return {
        "dueAt": instant(missed.due_at),
        "missedByMs": missed.late_ms,
        "count": missed.count,
        "why": missed.why.value,
        "done": missed.done.value,
    }


def _question(question: PendingQuestion) -> dict[str, Any]:
    return {
        "id": question.id,
        "kind": question.kind,
        "tool": question.tool,
        "text": question.text,
        "since": instant(question.since),
        "expiresAt": instant(question.expires_at),
    }


def _recovery(recovery: RecoveryStatus) -> dict[str, Any]:
    return {
        "kind": recovery.kind,
        "mode": recovery.mode,
        "attempt": recovery.attempt,
        "of": recovery.of,
        "until": None if recovery.until is None else instant(recovery.until),
    }
