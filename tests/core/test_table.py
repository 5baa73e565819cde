"""States × inputs, without a hole (case 193): every event is legal everywhere, and TABLE is what happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import get_args

import pytest

from loopsup.core import events
from loopsup.core.effects import HandOver, Step
from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    BranchMoved,
    Close,
    Command,
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
from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.misfire import Held, Why
from loopsup.core.model import (
    TERMINAL,
    AbortReason,
    Auto,
    Completed,
    Decision,
    Delivery,
    Driver,
    Failed,
    Fixed,
    Flight,
    Intent,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Phase,
    PromptKind,
    Queued,
    Running,
    Stamp,
    State,
    Stopped,
    Verb,
    Waiting,
)
from loopsup.core.step import advance, next_deadline, step, wants_agent
from loopsup.core.table import TABLE
from tests.support.script import T0, call, policy_of

POLICY = policy_of()
NOW = T0.plus(HOUR)
MOMENTS = {
    "early": NOW,
    "at the deadline": T0.plus(DAY),
    "late": T0.plus(DAY + HOUR),
    "set back": Moment(T0.wall - HOUR, NOW.mono),
    "new boot": Moment(NOW.wall, 0),
}
ALL_EVENTS: tuple[type, ...] = get_args(events.Event)


def flights() -> Iterator[Flight]:
    decisions = [None, *(Decision(verb, "s", "e", None, 3, T0.wall + MINUTE) for verb in Verb)]
    for kind, delivery, intent, decision in itertools.product(PromptKind, Delivery, [None, *Intent], decisions):
        if decision is not None and delivery is Delivery.PENDING:
            continue  # nobody decides before the prompt is there
        yield Flight(
            3,
            7,
            kind,
            delivery,
            Fixed(10 * MINUTE),
            MINUTE,
            DAY,
            due_at=T0.wall,
            attempts=5 if delivery is Delivery.PENDING else 0,
            retry=NOW if delivery is Delivery.PENDING else None,
            retry_used=kind is PromptKind.REMINDER,
            decision=decision,
            intent=intent,
        )


def phases() -> Iterator[Phase]:
    yield Waiting(NOW.plus(MINUTE))
    yield Waiting(NOW)
    yield Waiting(T0, Held(Why.USER, NOW.wall))
    yield Waiting(T0.plus(2 * DAY))
    yield Queued(T0.wall)
    yield Queued(T0.wall, attempts=5, retry=NOW)
    yield Queued(T0.wall, attempts=1, retry=NOW.plus(MINUTE))
    for reason, due in itertools.product(PauseReason, [None, T0.wall, NOW.wall + MINUTE]):
        yield Paused(reason, due)
    for flight in flights():
        yield Running(flight)
        if flight.delivery is not Delivery.PENDING and flight.intent is None:
            yield Paused(PauseReason.DURATION_LIMIT, flight=flight)
    yield Completed(T0.wall)
    yield Failed(T0.wall)
    yield Stopped(T0.wall)


def loops() -> Iterator[Loop | None]:
    yield None
    for phase, (used, retries) in itertools.product(phases(), [(3, 0), (50, 5)]):
        expired = isinstance(phase, Paused) and phase.reason is PauseReason.DURATION_LIMIT
        for latched in {expired, False}:
            if isinstance(phase, Paused) and phase.flight is not None and not latched:
                continue
            yield Loop(
                "id",
                "obj",
                POLICY,
                T0.wall,
                phase,
                iteration_count=used,
                protocol_retry_count=retries,
                prompts_sent=used + retries,
                generation=7,
                last_settled_at=T0.wall + 50 * MINUTE,
                expired_deadlines=(T0.wall + DAY,) if latched else (),
            )


def driven() -> Iterator[Loop]:
    """Some of them driven by `loopsup tick`: those who can wait, are fired, or come back to waiting."""
    for loop in loops():
        match loop:
            case Loop(iteration_count=3, phase=Waiting() | Queued() | Paused(flight=None)):
                yield replace(loop, driver=Driver.TICK)
            case Loop(
                iteration_count=3, phase=Running(Flight(delivery=Delivery.ACCEPTED, kind=PromptKind.ITERATION))
            ):
                yield replace(loop, driver=Driver.TICK)
            case _:
                pass


LOOPS = [*loops(), *driven()]


def one_of_each() -> list[Loop]:
    """One loop of each state and pause reason."""
    found = {(loop.state, getattr(loop.phase, "reason", None)): loop for loop in LOOPS if loop is not None}
    return list(found.values())


FRESH, STALE = Stamp("id", 3, 7), Stamp("id", 3, 6)
EVENTS: dict[type, list[Event]] = {
    Start: [
        Start("new", "next", POLICY, None, idle=True),
        Start("new", "next", POLICY, None, idle=False),
        Start("new", "next", POLICY, MINUTE, idle=True),
        Start("new", "  ", POLICY, None, idle=True),
        Start("new", "next", policy_of("1s"), None, idle=True),
        Start("new", "next", POLICY, None, idle=True, driver=Driver.TICK),
    ],
    Pause: [Pause()],
    Resume: [Resume(idle=True), Resume(idle=False)],
    Stop: [Stop()],
    Update: [
        Update(),
        Update(rhythm=Auto()),
        Update(rhythm=Fixed(MINUTE)),
        Update(rhythm=Fixed(1)),
        Update(for_ms=2 * DAY),
        Update(for_ms=MINUTE),
        Update(max_iterations=3),
        Update(max_iterations=100),
        Update(max_iterations=0),
        Update(for_ms=0),
        Update(min_delay_ms=MINUTE),
    ],
    Close: [Close(), Close(turns=2), Close(leaving=True)],
    Ticked: [Ticked(idle, by) for idle in (True, False) for by in Driver],
    HandoverAccepted: [HandoverAccepted(FRESH), HandoverAccepted(STALE)],
    HandoverRefused: [HandoverRefused(stamp, "no", busy) for stamp in (FRESH, STALE) for busy in (False, True)],
    DecisionCalled: [
        DecisionCalled(stamp, arguments)
        for stamp in (FRESH, STALE, None)
        for arguments in (
            *(call(verb) for verb in ("continue", "complete", "fail", "block")),
            call("continue", "1h"),
            None,
        )
    ],
    IterationSettled: [
        IterationSettled(stamp, idle=idle, turns=1, aborted=aborted)
        for stamp in (FRESH, STALE)
        for idle in (True, False)
        for aborted in (None, *AbortReason)
    ],
    RedeliveryEnded: [RedeliveryEnded(idle, why) for idle in (True, False) for why in (None, AbortReason.USER)],
    AgentLost: [AgentLost("exit status 1", 1)],
    AgentStartFailed: [AgentStartFailed("not found")],
    ConversationForking: [ConversationForking()],
    BranchMoved: [BranchMoved(None), *(BranchMoved(loop) for loop in one_of_each())],
    TtsrInjection: [TtsrInjection(("a",), ("a", "b")), TtsrInjection((), ())],
    Opened: [Opened(), Opened(reload=True), Opened(turns=2)],
}


def test_the_samples_leave_nothing_out() -> None:
    assert set(EVENTS) == set(ALL_EVENTS)
    assert {loop and loop.state for loop in LOOPS} == {None, *State}
    reasons = {loop.phase.reason for loop in LOOPS if loop is not None and isinstance(loop.phase, Paused)}
    assert reasons == set(PauseReason)


def test_the_table_has_no_hole() -> None:
    assert set(TABLE) == set(itertools.product([None, *State], ALL_EVENTS))
    assert all(TABLE.values()), "every pair has somewhere to go"


def test_the_table_keeps_an_end() -> None:
    for state, kind in itertools.product(TERMINAL, ALL_EVENTS):
        if kind not in {Start, BranchMoved}:
            assert TABLE[state, kind] == {state}


@cache
def outcomes(kind: type) -> list[tuple[Loop | None, Event, Moment, Step]]:
    """Every sample of this event in every sample of a state, at every moment."""
    pairs = itertools.product(LOOPS, EVENTS[kind], MOMENTS.values())
    return [(loop, event, now, step(loop, event, now)) for loop, event, now in pairs]


def place(loop: Loop | None) -> State | None:
    return None if loop is None else loop.state


@pytest.mark.parametrize("kind", ALL_EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_is_legal_everywhere(kind: type) -> None:
    for loop, event, now, one in outcomes(kind):
        landed = place(one.loop)
        assert landed in TABLE[place(loop), kind], f"{loop}\n{event}\n{now}"
        if isinstance(event, Command | DecisionCalled):
            assert one.reply is not None
            assert one.reply.message or one.reply.ok
            if not one.reply.ok and not isinstance(event, Resume):  # which may materialise the deadline (L-36)
                assert (one.loop, one.effects) == (loop, ()), f"{loop}\n{event}\n{now}"
        else:
            assert one.reply is None
        handed = [effect for effect in one.effects if isinstance(effect, HandOver)]
        if handed:
            assert one.loop is not None
            assert landed is State.RUNNING
            assert [effect.stamp for effect in handed] == [one.loop.stamp()]
        next_deadline(one.loop)
        wants_agent(one.loop, now)


@pytest.mark.parametrize("kind", ALL_EVENTS, ids=lambda kind: kind.__name__)
def test_the_steps_of_an_event_follow_each_other(kind: type) -> None:
    for loop, event, now in itertools.product(LOOPS[::3], EVENTS[kind], MOMENTS.values()):
        steps = advance(loop, event, now)
        causes = [made.cause for made in steps]
        late = [event, Ticked(idle=False)] if isinstance(event, Opened) else [Ticked(idle=False), event]
        assert causes in ([event], late)
        held = loop
        for made in steps:
            assert made.cause is not None
            assert made == replace(step(held, made.cause, now), cause=made.cause)
            held = made.loop


STALE_FACTS: list[Callable[[Stamp], Event]] = [
    HandoverAccepted,
    lambda stamp: HandoverRefused(stamp, "no"),
    lambda stamp: HandoverRefused(stamp, "no", busy=True),
    lambda stamp: IterationSettled(stamp, idle=True, turns=4),
    lambda stamp: DecisionCalled(stamp, call("complete")),
]


@pytest.mark.parametrize("stamp", [STALE, Stamp("id", 2, 7), Stamp("other", 3, 7), Stamp("id", 3, 8)], ids=str)
def test_what_belongs_to_another_prompt_changes_nothing(stamp: Stamp) -> None:
    for loop, fact in itertools.product(LOOPS, STALE_FACTS):
        one = step(loop, fact(stamp), NOW)
        assert (one.loop, one.effects) == (loop, ()), f"{loop}\n{fact}"


def test_every_move_of_the_table_happens() -> None:
    """The diagram drawn from the table shows no arrow that the machine never takes."""
    seen: dict[tuple[State | None, type], set[State | None]] = {pair: set() for pair in TABLE}
    for kind in ALL_EVENTS:
        for loop, _, _, one in outcomes(kind):
            seen[place(loop), kind].add(place(one.loop))
    missing = {
        f"{pair[0]} --{pair[1].__name__}--> {sorted(map(str, targets - seen[pair]))}"
        for pair, targets in TABLE.items()
        if targets - seen[pair]
    }
    assert missing == set()
