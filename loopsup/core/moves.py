"""The moves a loop can make, shared by commands and facts: hand over, pause, end.

Each takes the loop as it is and gives the step after the move. Which move is made is decided in
`commands.py` and `facts.py`.
"""

from __future__ import annotations

from dataclasses import replace

from loopsup.core import attention
from loopsup.core.effects import Announce, HandOver, Reply, Step
from loopsup.core.limits import RETRY_DELAYS_MS, SECOND
from loopsup.core.misfire import LATE_MS, TICK_LATE_MS, Done, Missed, Why, made_up
from loopsup.core.model import (
    Attention,
    AttentionStatus,
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
    Stopped,
    Verb,
    Waiting,
)

ATTENTION_REASONS = frozenset(
    {PauseReason.BLOCKED, PauseReason.DURATION_LIMIT, PauseReason.ITERATION_LIMIT, PauseReason.PROTOCOL_ERROR}
)
FINAL_VERBS = frozenset({Verb.COMPLETE, Verb.FAIL})


def deadline_armed(loop: Loop) -> bool:
    """Whether the deadline can still be materialised.

    Not twice for one value (D-11), not under a pending stop (D-37), not once a `complete` or `fail` was
    accepted in time (X-29), not where the state could not be read (L-116).
    """
    return not loop.deadline_expired and _expirable(loop)


def back_under_latch(loop: Loop) -> bool:
    """The deadline was put back to a value that was announced already: no loop goes on under it (D-11)."""
    already = isinstance(loop.phase, Paused) and loop.phase.reason is PauseReason.DURATION_LIMIT
    return loop.deadline_expired and not already and _expirable(loop)


def _expirable(loop: Loop) -> bool:
    if loop.terminal:
        return False
    match loop.phase:
        case Paused(reason=PauseReason.UNKNOWN_VERSION):
            return False
        case Running(flight):
            decided = flight.decision
            in_time = decided is not None and decided.verb in FINAL_VERBS and decided.at < loop.deadline_at
            return flight.intent is not Intent.STOP and not in_time
        case _:
            return True


def expire(loop: Loop, now: Moment) -> Step:
    """The deadline passed: pause and say so, once for each value. An iteration under way goes on (L-101, X-30)."""
    flight = loop.flight
    if flight is not None and flight.delivery is Delivery.PENDING:
        flight = None
    elif flight is not None:
        flight = replace(flight, intent=None)
    if isinstance(loop.phase, Waiting):
        late_ms, why = lateness(loop, loop.phase.due, now)
        loop = _missed(loop, loop.phase.due.wall, late_ms, why, Done.DROPPED)
    expired = replace(loop, phase=Paused(PauseReason.DURATION_LIMIT, flight=flight))
    if loop.deadline_expired:
        return Step(expired)
    expired = replace(expired, expired_deadlines=(*loop.expired_deadlines, loop.deadline_at))
    return announce(expired, attention.duration_limit(expired, now))


def announce(loop: Loop, event: Attention) -> Step:
    return Step(replace(loop, last_attention=event), (Announce(event),))


def pause(loop: Loop, reason: PauseReason, next_due_at: int | None = None) -> Loop:
    return replace(loop, phase=Paused(reason, next_due_at))


def stop(loop: Loop, now: Moment) -> Step:
    return Step(replace(loop, phase=Stopped(now.wall)))


def iteration_limit(loop: Loop, now: Moment) -> Step:
    paused = pause(loop, PauseReason.ITERATION_LIMIT)
    return announce(paused, attention.iteration_limit(paused, now))


def protocol_error(loop: Loop, text: str, now: Moment) -> Step:
    paused = pause(loop, PauseReason.PROTOCOL_ERROR)
    return announce(paused, attention.protocol_error(paused, text, now))


def decided(loop: Loop, decision: Decision, ended_at: int, now: Moment) -> Step:
    """Apply an accepted `complete`, `fail` or `block`."""
    phase: Phase
    match decision.verb:
        case Verb.COMPLETE:
            phase, status = Completed(ended_at), AttentionStatus.COMPLETED
        case Verb.FAIL:
            phase, status = Failed(ended_at), AttentionStatus.FAILED
        case Verb.BLOCK:
            phase, status = Paused(PauseReason.BLOCKED), AttentionStatus.BLOCKED
        case Verb.CONTINUE:
            raise ValueError("continue is scheduled, not announced")
    moved = replace(loop, phase=phase)
    return announce(moved, attention.from_agent(moved, status, decision, ended_at, now))


def next_delay_ms(loop: Loop, flight: Flight, decision: Decision) -> int:
    """The wait after a `continue`: by the rhythm in force, unless it just became auto (D-17)."""
    match loop.policy.rhythm, flight.rhythm:
        case Fixed(every_ms), _:
            return every_ms
        case Auto(), Fixed(every_ms):
            return every_ms
        case _:
            assert decision.next_delay_ms is not None
            return decision.next_delay_ms


def launch(loop: Loop, queued: Queued, now: Moment) -> Step:
    """Hand over the next envelope. It counts from here on: the record precedes the hand-over (D-18)."""
    if loop.iteration_count >= loop.policy.max_iterations:
        return iteration_limit(loop, now)
    flight = Flight(
        iteration=loop.iteration_count + 1,
        generation=loop.generation + 1,
        kind=PromptKind.ITERATION,
        delivery=Delivery.SENT,
        rhythm=loop.policy.rhythm,
        min_delay_ms=loop.policy.min_delay_ms,
        max_delay_ms=loop.policy.max_delay_ms,
        due_at=queued.due_at,
        attempts=queued.attempts,
    )
    counted = replace(loop, iteration_count=flight.iteration)
    return _send(counted, flight)


def launch_reminder(loop: Loop, flight: Flight) -> Step:
    """Hand over the reminder of the iteration under way."""
    return _send(loop, replace(flight, generation=loop.generation + 1, delivery=Delivery.SENT, retry=None))


def _send(loop: Loop, flight: Flight) -> Step:
    sent = replace(loop, phase=Running(flight), generation=flight.generation, prompts_sent=loop.prompts_sent + 1)
    stamp = sent.stamp()
    assert stamp is not None
    return Step(sent, (HandOver(stamp, flight.kind),))


def due_or_queued(loop: Loop, due_at: int, now: Moment, idle: bool) -> Step:
    """Wake at `due_at`: later by the timer, now if that is past and the agent is idle, else queued."""
    if due_at > now.wall or loop.driver is Driver.TICK:  # also what is due now is fired by the next tick
        return Step(replace(loop, phase=Waiting(now.plus(due_at - now.wall))))
    return queue_or_launch(loop, Queued(due_at), now, idle)


def unfired(loop: Loop, now: Moment) -> Loop:
    """A wake that `loopsup tick` had fired, and of which nothing came yet, is left to the next tick."""
    match loop.phase:
        case Queued(due_at=due_at):
            return replace(loop, phase=Waiting(now.plus(due_at - now.wall)))
        case _:
            return loop


def queue_or_launch(loop: Loop, queued: Queued, now: Moment, idle: bool) -> Step:
    return launch(loop, queued, now) if idle else Step(replace(loop, phase=queued))


def lateness(loop: Loop, due: Moment, now: Moment) -> tuple[int, Why]:
    """By how much a wake is overdue on the clock that is further on, and what that says."""
    wall, mono = now.wall - due.wall, now.mono - due.mono
    if loop.driver is Driver.TICK:
        held = loop.phase.held if isinstance(loop.phase, Waiting) else None
        in_time = held is not None and now.wall - held.until <= TICK_LATE_MS
        return wall, held.why if held is not None and in_time else Why.NO_TICK
    return max(wall, mono), Why.ASLEEP if wall - mono > LATE_MS else Why.HELD_UP


def wake(loop: Loop, due_at: int, late_ms: int, why: Why, now: Moment, idle: bool) -> Step:
    """The wake of `due_at` can be acted on only now: fire it, or leave it out where the policy says so."""
    if late_ms <= on_time_ms(loop) or made_up(loop.policy.misfire, late_ms):
        return queue_or_launch(_missed(loop, due_at, late_ms, why, Done.WOKEN), Queued(due_at), now, idle)
    period = _period_ms(loop)
    skipped = _missed(loop, due_at, late_ms, why, Done.SKIPPED)
    return Step(replace(skipped, phase=Waiting(now.plus(period - late_ms % period))))


def on_time_ms(loop: Loop) -> int:
    """A wake this late is no missed one yet."""
    return TICK_LATE_MS if loop.driver is Driver.TICK else LATE_MS


def _missed(loop: Loop, due_at: int, late_ms: int, why: Why, what: Done) -> Loop:
    """The loop with this wake on record, if it is late enough to be one."""
    if late_ms <= on_time_ms(loop):
        return loop
    count = 1 + late_ms // _period_ms(loop)
    return replace(loop, last_missed=Missed(due_at, late_ms, count, why, what))


def _period_ms(loop: Loop) -> int:
    """From one wake to the next, as far as it is known: the agent's last delay stands for the ones to come."""
    policy, last = loop.policy, loop.last_decision
    if isinstance(policy.rhythm, Fixed):
        return max(policy.rhythm.every_ms, SECOND)  # a journal may say anything
    named = policy.min_delay_ms if last is None or last.next_delay_ms is None else last.next_delay_ms
    return max(min(max(named, policy.min_delay_ms), policy.max_delay_ms), SECOND)


def retry_after(attempts: int, now: Moment) -> Moment | None:
    """When to try a failed start or hand-over again after `attempts` failures; None: no more (D-55)."""
    return now.plus(RETRY_DELAYS_MS[attempts - 1]) if attempts <= len(RETRY_DELAYS_MS) else None


def refuse(loop: Loop | None, message: str, kind: str = "refused") -> Step:
    return Step(loop, reply=Reply(False, message, kind=kind))


def done(step: Step, message: str, warnings: tuple[str, ...] = ()) -> Step:
    return replace(step, reply=Reply(True, message, warnings))
