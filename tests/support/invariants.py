"""What must hold after every step of every life of a session (case 191)."""

from __future__ import annotations

from loopsup.core.effects import Announce, Effect, HandOver
from loopsup.core.events import (
    AgentLost,
    BranchMoved,
    Close,
    Event,
    IterationSettled,
    Opened,
    Resume,
    Ticked,
    Update,
)
from loopsup.core.limits import PROTOCOL_RETRY_CEILING
from loopsup.core.misfire import LATE_MS, Done, made_up
from loopsup.core.model import AttentionStatus, Delivery, Loop, Moment, Paused, PromptKind, State, Waiting
from loopsup.core.step import next_deadline, step
from loopsup.core.table import TABLE
from loopsup.wire.transition import newly_missed

ATTENTION = {str(status) for status in AttentionStatus}


def signature(loop: Loop | None) -> tuple[str | None, str | None]:
    if loop is None:
        return None, None
    reason = str(loop.phase.reason) if isinstance(loop.phase, Paused) else None
    return str(loop.state), reason


class Invariants:
    """Watches every step of one session."""

    def __init__(self) -> None:
        self.maximum = 0
        self.taken = 0
        self.announced: set[tuple[str, str, int]] = set()

    def __call__(
        self, before: Loop | None, event: Event, now: Moment, after: Loop | None, effects: tuple[Effect, ...]
    ) -> None:
        again = step(before, event, now)
        assert (again.loop, again.effects) == (after, effects), "the same event gives the same step: replay is exact"
        place = None if before is None else before.state
        landed = None if after is None else after.state
        assert landed in TABLE[place, type(event)], f"{place} --{type(event).__name__}--> {landed}"
        if after is not None:
            self.one_loop(after)
            self.handed_over(after, now, effects)
            self.told(before, after, now, effects)
            self.missed(before, event, now, after, effects)
        else:
            assert effects == ()
        if before is not None and after is not None and before.id == after.id:
            self.same_loop(before, after)
            self.calls(before, event, after)

    def one_loop(self, loop: Loop) -> None:
        assert loop.iteration_count <= max(self.maximum, loop.policy.max_iterations)
        assert 0 <= loop.protocol_retry_count <= PROTOCOL_RETRY_CEILING
        assert 0 <= loop.prompts_sent <= loop.iteration_count + loop.protocol_retry_count
        assert len(set(loop.expired_deadlines)) == len(loop.expired_deadlines)
        due = next_deadline(loop)
        if loop.terminal:
            assert (due.wall, due.mono) == (None, None)
        if isinstance(loop.phase, Waiting) and due.mono is not None:
            assert due.wall is not None
            assert due.wall < loop.deadline_at, "a wake is armed only before the deadline"
        if loop.state is State.PAUSED:
            assert due.mono is None, "nothing wakes a paused loop"
        active = loop.state in {State.WAITING, State.QUEUED, State.RUNNING}
        assert not (active and loop.deadline_expired), "a latched deadline leaves no active loop (D-11)"
        if not loop.terminal and not loop.deadline_expired and due.wall is None:
            # Only what ends the iteration whatever the clock says holds the deadline off (D-36, D-37).
            flight = loop.flight
            assert flight is not None
            assert flight.intent == "stop" or (flight.decision and flight.decision.verb in {"complete", "fail"})

    def handed_over(self, loop: Loop, now: Moment, effects: tuple[Effect, ...]) -> None:
        given = [effect for effect in effects if isinstance(effect, HandOver)]
        assert len(given) <= 1
        for effect in given:
            assert loop.state is State.RUNNING
            assert effect.stamp == loop.stamp()
            assert loop.flight is not None
            assert loop.flight.kind is effect.kind
            assert now.wall < loop.deadline_at, "nothing is sent at or after the deadline"
            assert not loop.deadline_expired
            assert loop.flight.intent is None, "nothing is sent against the user's word"
            if effect.kind is PromptKind.ITERATION:
                assert loop.iteration_count <= loop.policy.max_iterations

    def missed(
        self, before: Loop | None, event: Event, now: Moment, after: Loop, effects: tuple[Effect, ...]
    ) -> None:
        """What was found missed is late, is due no more, and became what the policy says."""
        found = newly_missed(before, after, event)
        if found is None:
            return
        assert isinstance(event, Ticked | Resume | Update)
        assert found.late_ms > LATE_MS
        assert found.count >= 1
        match found.done:
            case Done.DROPPED:
                assert signature(after) == ("paused", "duration_limit")
            case Done.SKIPPED:
                assert not made_up(after.policy.misfire, found.late_ms)
                assert isinstance(after.phase, Waiting)
                assert after.phase.due.wall > now.wall
                assert after.phase.due.mono > now.mono
                assert effects == ()
            case Done.WOKEN:
                assert made_up(after.policy.misfire, found.late_ms)
                assert after.state in {State.QUEUED, State.RUNNING} or signature(after) == (
                    "paused",
                    "iteration_limit",
                )

    def told(self, before: Loop | None, after: Loop, now: Moment, effects: tuple[Effect, ...]) -> None:
        told = [effect.attention for effect in effects if isinstance(effect, Announce)]
        state, reason = signature(after)
        was = signature(before) if before is not None and before.id == after.id else (None, None)
        into = {state, reason} & ATTENTION if (state, reason) != was else set()
        if before is None or before.id != after.id:
            into = set()  # a branch brings back a state that was told long ago
        elif reason == "duration_limit":  # told once for each deadline value, and not again (D-11)
            into = {"duration_limit"} if after.expired_deadlines != before.expired_deadlines else set()
        assert len(told) == len(into), f"{was} -> {(state, reason)} told {told}"
        for attention in told:
            assert str(attention.status) in into
            assert attention == after.last_attention
            assert attention.observed_at >= attention.ended_at
            assert attention.calendar_elapsed_ms >= 0
            assert attention.deadline_remaining_ms >= 0
            assert attention.iteration_count == after.iteration_count
            assert attention.protocol_retry_count == after.protocol_retry_count
            if attention.status is AttentionStatus.DURATION_LIMIT:
                assert attention.ended_at == after.deadline_at
                key = (after.id, str(attention.status), after.deadline_at)
                assert key not in self.announced, "a deadline value is told at most once"
                self.announced.add(key)

    def calls(self, before: Loop, event: Event, after: Loop) -> None:
        """The model calls are those that were reported of the iteration in flight, each report once (A-08)."""
        if isinstance(event, BranchMoved):
            return  # another branch has its own
        ours = before.flight is not None and before.flight.delivery is not Delivery.PENDING
        if isinstance(event, IterationSettled):
            ours = ours and event.stamp == before.stamp()
        reported = event.turns if ours and isinstance(event, IterationSettled | AgentLost | Close | Opened) else 0
        assert after.llm_calls - before.llm_calls == reported

    def same_loop(self, before: Loop, after: Loop) -> None:
        assert (after.objective, after.started_at) == (before.objective, before.started_at)
        assert after.protocol_retry_count >= before.protocol_retry_count
        assert after.generation >= before.generation
        assert after.llm_calls >= before.llm_calls
        assert set(before.expired_deadlines) <= set(after.expired_deadlines)
        if before.terminal:
            assert after == before, "an end is an end"
