"""The machine: `advance(loop, event, now)` and `next_deadline(loop)`.

Theory of operation. A loop is a value; each event gives the next value and the effects to be performed
once that value is safely journaled. Whoever drives the machine does one thing: wait for the next event
or for `next_deadline`, call `advance`, journal every step that changed the loop, perform its effects.
There is one timer, and it only ever delivers `Ticked`, which looks at the clocks again.

Two rules (see model.py): what decides about a loop is here; nothing here knows a clock, a file or an agent.
The machine is total: every event is legal in every state, and one that does not apply changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from loopsup.core import commands, facts, lifecycle
from loopsup.core.effects import Step
from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    BranchMoved,
    Close,
    ConversationForking,
    DecisionCalled,
    Event,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
    Opened,
    Pause,
    RedeliveryEnded,
    Resume,
    Start,
    Stop,
    Ticked,
    TtsrInjection,
    Update,
)
from loopsup.core.model import Delivery, Driver, Loop, Moment, Queued, Running, Waiting
from loopsup.core.moves import deadline_armed, expire


@dataclass(frozen=True, slots=True)
class Due:
    """The earliest instants, each on its own clock, at which `Ticked` must be delivered (None: never)."""

    wall: int | None
    mono: int | None

    def wait_ms(self, now: Moment) -> int | None:
        """Milliseconds to wait from `now`, 0 if it is due, None if nothing is armed."""
        waits = [at - clock for at, clock in ((self.wall, now.wall), (self.mono, now.mono)) if at is not None]
        return max(0, min(waits)) if waits else None


def advance(loop: Loop | None, event: Event, now: Moment) -> tuple[Step, ...]:
    """The steps an event makes: one, or two where a passed deadline is materialised by the way.

    A deadline that has passed comes before the event (a command at its very instant goes first, D-35);
    at the opening of a journal it comes after the takeover (D-44, L-102). The reply is in the last step.
    """
    if isinstance(event, Opened):
        opened = _caused(step(loop, event, now), event)
        due = _passed(opened.loop, now)
        return (opened,) if due is None else (opened, _expired(due, now))
    due = _passed(loop, now)
    if due is None or isinstance(event, Ticked | Start | BranchMoved):
        return (_caused(step(loop, event, now), event),)
    if isinstance(event, Pause | Resume | Stop | Update | Close) and now.wall == due.deadline_at:
        return (_caused(step(loop, event, now), event),)
    expired = _expired(due, now)
    return (expired, _caused(step(expired.loop, event, now), event))


def _expired(loop: Loop, now: Moment) -> Step:
    return _caused(expire(loop, now), Ticked(idle=False))


def _caused(made: Step, event: Event) -> Step:
    return replace(made, cause=event)


def _passed(loop: Loop | None, now: Moment) -> Loop | None:
    """The loop, if its deadline is armed and reached."""
    return loop if loop is not None and deadline_armed(loop) and now.wall >= loop.deadline_at else None


def step(loop: Loop | None, event: Event, now: Moment) -> Step:
    """One event. Total; the loop is returned unchanged (the same value) where the event does not apply."""
    match event:
        case Start():
            return commands.on_start(loop, event, now)
        case Pause():
            return commands.on_pause(loop, event, now)
        case Resume():
            return commands.on_resume(loop, event, now)
        case Stop():
            return commands.on_stop(loop, event, now)
        case Update():
            return commands.on_update(loop, event, now)
        case Close():
            return commands.on_close(loop, event, now)
        case DecisionCalled():
            return facts.on_decision(loop, event, now)
        case BranchMoved():
            return lifecycle.on_branch(loop, event, now)
        case _:
            if loop is None or isinstance(event, TtsrInjection):  # a stream rule is none of the loop's business
                return Step(loop)
            return _fact(loop, event, now)


def _fact(
    loop: Loop,
    event: Ticked
    | HandoverAccepted
    | HandoverRefused
    | IterationSettled
    | RedeliveryEnded
    | AgentLost
    | AgentStartFailed
    | ConversationForking
    | Opened,
    now: Moment,
) -> Step:
    match event:
        case Ticked():
            return facts.on_tick(loop, event, now)
        case HandoverAccepted():
            return facts.on_accepted(loop, event, now)
        case HandoverRefused():
            return facts.on_refused(loop, event, now)
        case RedeliveryEnded():
            return facts.on_redelivery_ended(loop, event, now)
        case IterationSettled():
            return facts.on_settled(loop, event, now)
        case AgentLost():
            return facts.on_lost(loop, event, now)
        case AgentStartFailed():
            return facts.on_start_failed(loop, event, now)
        case ConversationForking():
            return lifecycle.on_forking(loop, event, now)
        case Opened():
            return lifecycle.on_opened(loop, event, now)
        case _:
            assert_never(event)


def next_deadline(loop: Loop | None) -> Due:
    """When `Ticked` must come next. The deadline is judged by wall time only, a wake by either clock (D-40)."""
    if loop is None or loop.terminal:
        return Due(None, None)
    walls = [loop.deadline_at] if deadline_armed(loop) else []
    monos = []
    moment: Moment | None = None
    match loop.phase:
        case Waiting(due) if due.wall < loop.deadline_at and loop.driver is Driver.RESIDENT:
            moment = due
        case Queued(retry=retry):
            moment = retry
        case Running(flight) if flight.delivery is Delivery.PENDING:
            moment = flight.retry
        case _:
            pass
    if moment is not None:
        walls.append(moment.wall)
        monos.append(moment.mono)
    return Due(min(walls, default=None), min(monos, default=None))


def wants_agent(loop: Loop | None, now: Moment) -> bool:
    """A prompt is due and only waits for the agent to be there and idle."""
    match loop.phase if loop is not None else None:
        case Queued(retry=retry):
            return retry is None or retry.reached(now)
        case Running(flight) if flight.delivery is Delivery.PENDING:
            return flight.retry is None or flight.retry.reached(now)
        case _:
            return False
