"""The conversation divides, the session closes, a supervisor takes over: nothing is armed by itself.

Two exceptions: a reload, a transparent restart of the supervisor (L-111), and a loop that `loopsup tick` drives.
"""

from __future__ import annotations

from dataclasses import replace

from loopsup.core.effects import Step
from loopsup.core.events import BranchMoved, ConversationForking, Opened
from loopsup.core.facts import apply_intent, conclude, with_flight
from loopsup.core.model import (
    Delivery,
    Driver,
    Flight,
    Intent,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Queued,
    Running,
    Verb,
    Waiting,
)
from loopsup.core.moves import FINAL_VERBS, decided, next_delay_ms, pause, stop, unfired


def on_forking(loop: Loop, event: ConversationForking, now: Moment) -> Step:
    """Pause before the conversation divides, so that neither branch holds a timer (L-117)."""
    match loop.phase:
        case Waiting(due):
            return Step(pause(loop, PauseReason.FORK, due.wall))
        case Queued(due_at=due_at):
            return Step(pause(loop, PauseReason.FORK, due_at))
        case Running(flight) if flight.delivery is Delivery.PENDING:
            return Step(pause(loop, PauseReason.FORK))
        case Running(flight) if flight.intent is None:
            return Step(with_flight(loop, replace(flight, intent=Intent.FORK)))
        case _:
            return Step(loop)


def on_branch(loop: Loop | None, event: BranchMoved, now: Moment) -> Step:
    """The loop of the present branch is the one marked there, and it is never armed by moving (L-108)."""
    there = event.loop
    if there is None:
        return Step(None)
    match there.phase:
        case Waiting(due):
            there = pause(there, PauseReason.FORK, due.wall)
        case Queued(due_at=due_at):
            there = pause(there, PauseReason.FORK, due_at)
        case Running():
            there = pause(there, PauseReason.FORK)
        case Paused():
            there = replace(there, phase=replace(there.phase, flight=None))
        case _:
            pass
    if loop is not None and loop.id == there.id:
        expired = tuple(dict.fromkeys((*there.expired_deadlines, *loop.expired_deadlines)))
        there = replace(there, generation=max(loop.generation, there.generation), expired_deadlines=expired)
    return Step(there)


def on_opened(loop: Loop, event: Opened, now: Moment) -> Step:
    """Take over what the journal says: transparently after a reload, paused after a loss (D-44).

    A wake that `loopsup tick` fires depends on no supervisor, so it is not lost with one.
    """
    match loop.phase:
        case Waiting(due) if event.reload or loop.driver is Driver.TICK:
            return Step(replace(loop, phase=replace(loop.phase, due=now.plus(due.wall - now.wall))))
        case Queued() if loop.driver is Driver.TICK:
            return Step(unfired(loop, now))
        case Queued(due_at=due_at) if event.reload:
            return Step(replace(loop, phase=Queued(due_at)))
        case Waiting(due):
            return Step(pause(loop, PauseReason.SUPERVISOR_LOST, due.wall))
        case Queued(due_at=due_at):
            return Step(pause(loop, PauseReason.SUPERVISOR_LOST, due_at))
        case Running(flight) | Paused(flight=Flight() as flight):
            turns = 0 if flight.delivery is Delivery.PENDING else event.turns  # those before were counted already
            return _take_over(replace(loop, llm_calls=loop.llm_calls + turns), flight, now)
        case _:
            return Step(loop)


def _take_over(loop: Loop, flight: Flight, now: Moment) -> Step:
    """An iteration was in flight. A decision it had accepted is applied first, at its own instant."""
    decision = flight.decision
    if flight.intent is Intent.STOP:
        return stop(loop, now)
    if decision is not None and decision.verb in FINAL_VERBS:
        return decided(loop, decision, decision.at, now)
    if isinstance(loop.phase, Paused):
        return Step(replace(loop, phase=replace(loop.phase, flight=None)))
    if decision is None:
        return Step(pause(loop, PauseReason.SUPERVISOR_LOST))
    if decision.verb is Verb.BLOCK:
        return decided(loop, decision, decision.at, now)
    due = decision.at + next_delay_ms(loop, flight, decision)
    settled = replace(loop, last_settled_at=decision.at)  # nobody saw it settle; the wait counts from there
    return Step(pause(settled, PauseReason.SUPERVISOR_LOST, due))


def conclude_closed(loop: Loop, turns: int, now: Moment, *, leaving: bool = False) -> Step:
    """The session closes over a running (or already paused) loop."""
    flight = loop.flight
    if flight is None:
        return Step(loop)
    closed = replace(loop, llm_calls=loop.llm_calls + turns)
    if flight.decision is not None:
        closed = replace(closed, last_settled_at=now.wall)  # the session's end is the iteration's
        step = conclude(closed, flight, flight.decision, now)
        stays = leaving and loop.driver is Driver.TICK
        if step.loop is not None and isinstance(step.loop.phase, Waiting) and not stays:
            return Step(pause(step.loop, PauseReason.SESSION_CLOSED, step.loop.phase.due.wall))
        return step
    if isinstance(closed.phase, Paused):
        return Step(replace(closed, phase=replace(closed.phase, flight=None)))
    if flight.intent is not None:
        return apply_intent(closed, flight.intent, None, now)
    return Step(pause(closed, PauseReason.SESSION_CLOSED))
