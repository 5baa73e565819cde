"""The same iteration once more, after an interrupted response: not counted again, ended like any other wait."""

from __future__ import annotations

import pytest

from loopsup.core.effects import HandOver
from loopsup.core.events import (
    AgentStartFailed,
    DecisionCalled,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
    Pause,
    RedeliveryEnded,
    Start,
    Stop,
    Ticked,
)
from loopsup.core.limits import HOUR, SECOND
from loopsup.core.model import AbortReason, Loop, Moment, Paused, PauseReason, PromptKind, Stopped
from loopsup.core.step import advance, next_deadline, wants_agent
from tests.support.script import T0, call, policy_of


class Loops:
    """A loop and what it asked for."""

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.asked: list[PromptKind] = []
        self.tell(Start("l", "look", policy_of("10m"), None, True))
        self.tell(Ticked(idle=True))

    def tell(self, event: object, now: Moment = T0) -> Loop:
        for step in advance(self.loop, event, now):  # type: ignore[arg-type]
            self.loop = step.loop
            self.asked += [effect.kind for effect in step.effects if isinstance(effect, HandOver)]
        assert self.loop is not None
        return self.loop

    def settle(self, again_ms: int | None, now: Moment = T0, **more: object) -> Loop:
        assert self.loop is not None
        stamp = self.loop.stamp()
        assert stamp is not None
        self.tell(HandoverAccepted(stamp), now)
        return self.tell(IterationSettled(stamp, True, 1, again_ms=again_ms, **more), now)  # type: ignore[arg-type]


def test_it_waits_for_its_time_then_the_envelope_comes_again() -> None:
    loops = Loops()
    loop = loops.settle(5 * SECOND)
    assert (loop.state, loop.iteration_count, loop.prompts_sent, loop.llm_calls) == ("running", 1, 1, 1)
    assert next_deadline(loop).mono == T0.mono + 5 * SECOND
    early = T0.plus(5 * SECOND - 1)
    assert not wants_agent(loops.tell(Ticked(idle=True), early), early)
    then = T0.plus(5 * SECOND)
    assert wants_agent(loops.loop, then)
    loop = loops.tell(Ticked(idle=True), then)
    assert loops.asked == [PromptKind.ITERATION, PromptKind.AGAIN]
    assert (loop.iteration_count, loop.prompts_sent, loop.protocol_retry_count) == (1, 2, 0)
    stamp = loop.stamp()
    assert stamp is not None
    loops.tell(DecisionCalled(stamp, call("complete")), then)
    assert loops.settle(None, then).state == "completed"


def test_its_reminder_is_still_there() -> None:
    loops = Loops()
    loops.settle(0)
    loops.tell(Ticked(idle=True))
    loop = loops.settle(None)
    assert loops.asked == [PromptKind.ITERATION, PromptKind.AGAIN, PromptKind.REMINDER]
    assert loop.protocol_retry_count == 1
    loops.settle(0)
    loops.tell(Ticked(idle=True))
    assert loops.asked[3:] == [PromptKind.REMINDER]  # the interrupted reminder, once more


def test_a_refused_one_takes_nothing_back_but_itself() -> None:
    loops = Loops()
    loops.settle(0)
    loop = loops.tell(Ticked(idle=True))
    stamp = loop.stamp()
    assert stamp is not None
    loop = loops.tell(HandoverRefused(stamp, "busy", busy=True))
    assert (loop.state, loop.iteration_count, loop.prompts_sent) == ("running", 1, 1)
    loops.tell(Ticked(idle=True), T0.plus(2 * SECOND))
    assert loops.asked[-1] is PromptKind.AGAIN


def test_an_agent_that_does_not_come_back_is_told_of() -> None:
    loops = Loops()
    loops.settle(0)
    now = T0
    for _ in range(6):
        now = now.plus(HOUR // 10)
        loop = loops.tell(AgentStartFailed("no key"), now)
    assert isinstance(loop.phase, Paused)
    assert loop.phase.reason is PauseReason.PROTOCOL_ERROR
    assert "The iteration could not be handed to the agent: no key" in str(loop.last_attention)


@pytest.mark.parametrize(
    ("event", "phase"), [(Pause(), Paused(PauseReason.USER)), (Stop(), Stopped(T0.wall + SECOND))]
)
def test_pause_and_stop_come_at_once(event: object, phase: object) -> None:
    loops = Loops()
    loops.settle(HOUR)
    assert loops.tell(event, T0.plus(SECOND)).phase == phase


def test_the_deadline_comes_before_it() -> None:
    loops = Loops()
    loops.settle(23 * HOUR)
    loop = loops.tell(Ticked(idle=True), T0.plus(24 * HOUR))
    assert loop.phase == Paused(PauseReason.DURATION_LIMIT)
    assert loops.asked == [PromptKind.ITERATION]


@pytest.mark.parametrize(
    ("more", "phase"), [({"aborted": AbortReason.USER}, Paused(PauseReason.INTERRUPTED))], ids=["aborted"]
)
def test_what_a_person_did_goes_first(more: dict[str, object], phase: object) -> None:
    assert Loops().settle(0, **more).phase == phase


def test_switched_off_it_stays_without_a_decision() -> None:
    """The wait ends at once, and what follows is the reminder (C-64, X-08)."""
    loops = Loops()
    loops.settle(5 * SECOND)
    loop = loops.tell(RedeliveryEnded(idle=True), T0.plus(SECOND))
    assert loops.asked == [PromptKind.ITERATION, PromptKind.REMINDER]
    assert (loop.iteration_count, loop.protocol_retry_count, loop.prompts_sent) == (1, 1, 2)


def test_aborted_it_is_interrupted() -> None:
    loops = Loops()
    loops.settle(5 * SECOND)
    loop = loops.tell(RedeliveryEnded(idle=True, aborted=AbortReason.USER), T0.plus(SECOND))
    assert loop.phase == Paused(PauseReason.INTERRUPTED)
    assert loops.asked == [PromptKind.ITERATION]


def test_where_nothing_waits_nothing_ends() -> None:
    loops = Loops()
    before = loops.loop
    assert loops.tell(RedeliveryEnded(idle=True)) is before
