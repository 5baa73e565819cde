"""Attention events: the six things a person (and the hook) is told about."""

from __future__ import annotations

from loopsup.core.durations import show
from loopsup.core.model import Attention, AttentionStatus, Decision, Loop, Moment


def from_agent(loop: Loop, status: AttentionStatus, decision: Decision, ended_at: int, now: Moment) -> Attention:
    """`completed`, `failed` and `blocked` carry the agent's own words (L-121)."""
    return _build(loop, status, decision.summary, "agent", decision.evidence, ended_at, now)


def duration_limit(loop: Loop, now: Moment) -> Attention:
    """The deadline passed: `ended_at` is the deadline itself, however late it is observed (L-103)."""
    text = f"The deadline, {show(loop.policy.for_ms)} after the start, passed after {_iterations(loop)}."
    status = AttentionStatus.DURATION_LIMIT
    return _build(loop, status, "The time of the loop is used up.", "extension", text, loop.deadline_at, now)


def iteration_limit(loop: Loop, now: Moment) -> Attention:
    """All iterations of the limit are counted (L-100)."""
    text = f"{loop.iteration_count} of {loop.policy.max_iterations} iterations are used."
    status = AttentionStatus.ITERATION_LIMIT
    return _build(loop, status, "The iterations of the loop are used up.", "extension", text, now.wall, now)


def protocol_error(loop: Loop, text: str, now: Moment) -> Attention:
    """The agent did not decide, or could not be reached; `text` has the facts (L-122)."""
    status = AttentionStatus.PROTOCOL_ERROR
    return _build(loop, status, "The agent did not deliver a valid decision.", "extension", text, now.wall, now)


def _build(
    loop: Loop, status: AttentionStatus, summary: str, source: str, text: str, ended_at: int, now: Moment
) -> Attention:
    return Attention(
        status=status,
        summary=summary,
        source=source,
        text=text,
        iteration_count=loop.iteration_count,
        max_iterations=loop.policy.max_iterations,
        protocol_retry_count=loop.protocol_retry_count,
        calendar_elapsed_ms=max(0, ended_at - loop.started_at),
        deadline_remaining_ms=max(0, loop.deadline_at - ended_at),
        ended_at=ended_at,
        observed_at=max(now.wall, ended_at),
    )


def _iterations(loop: Loop) -> str:
    return "1 iteration" if loop.iteration_count == 1 else f"{loop.iteration_count} iterations"
