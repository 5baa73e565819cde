"""What happens to a loop from outside: time, and what the agent does.

A fact that belongs to another prompt (its stamp is stale) changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from loopsup.core import decisions
from loopsup.core.effects import Reply, Step
from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    DecisionCalled,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
    RedeliveryEnded,
    Ticked,
)
from loopsup.core.limits import BUSY_RECHECK_MS, PROTOCOL_RETRY_CEILING
from loopsup.core.model import (
    AbortReason,
    Decision,
    Delivery,
    Flight,
    Intent,
    Loop,
    Moment,
    Paused,
    PauseReason,
    PromptKind,
    Queued,
    Running,
    Stamp,
    Verb,
    Waiting,
)
from loopsup.core.moves import (
    FINAL_VERBS,
    deadline_armed,
    decided,
    expire,
    iteration_limit,
    lateness,
    launch,
    launch_reminder,
    next_delay_ms,
    pause,
    protocol_error,
    refuse,
    retry_after,
    stop,
    wake,
)

INTERRUPTING = frozenset({AbortReason.USER, AbortReason.CLIENT_GONE, AbortReason.SHUTDOWN})
UNKNOWN_ARRIVAL = "it is unknown whether the prompt arrived"  # of the reason of a loss that is for that alone
_NOT_RUNNING = "no iteration of the loop is running here, so this call changes nothing; do not repeat it"


def on_tick(loop: Loop, event: Ticked, now: Moment) -> Step:
    """Deadline before wake (X-29); never more than one wake, however late (L-12)."""
    if deadline_armed(loop) and now.wall >= loop.deadline_at:
        return expire(loop, now)
    match loop.phase:
        case Waiting(due) if event.by is loop.driver and due.wall < loop.deadline_at and due.reached(now):
            return wake(loop, due.wall, *lateness(loop, due, now), now, event.idle)
        case Queued() if event.idle and _ready(loop.phase.retry, now):
            return launch(loop, loop.phase, now)
        case Running(flight) if event.idle and flight.delivery is Delivery.PENDING and _ready(flight.retry, now):
            return launch_reminder(loop, flight)
        # The agent is not free at the instant of the retry: that instant must not stay due for ever.
        case Queued(retry=Moment() as retry) if retry.reached(now):
            return Step(replace(loop, phase=replace(loop.phase, retry=None)))
        case Running(Flight(delivery=Delivery.PENDING, retry=Moment() as retry) as flight) if retry.reached(now):
            return Step(with_flight(loop, replace(flight, retry=None)))
        case _:
            return Step(loop)


def _ready(retry: Moment | None, now: Moment) -> bool:
    return retry is None or retry.reached(now)


def on_accepted(loop: Loop, event: HandoverAccepted, now: Moment) -> Step:
    flight = _current(loop, event.stamp)
    if flight is None or flight.delivery is not Delivery.SENT:
        return Step(loop)
    return Step(with_flight(loop, replace(flight, delivery=Delivery.ACCEPTED)))


def on_refused(loop: Loop, event: HandoverRefused, now: Moment) -> Step:
    """Nothing was started: the count is taken back and the prompt tried again later (D-18, D-55)."""
    flight = _current(loop, event.stamp)
    if flight is None or flight.delivery is not Delivery.SENT:
        return Step(loop)
    back = replace(loop, prompts_sent=loop.prompts_sent - 1)
    if flight.decision is not None:
        return _not_needed(back, flight, flight.decision, now) if flight.kind is PromptKind.REMINDER else Step(loop)
    if flight.kind is PromptKind.ITERATION:
        back = replace(back, iteration_count=loop.iteration_count - 1)
    if isinstance(loop.phase, Paused):
        return Step(replace(back, phase=replace(loop.phase, flight=None)))
    if flight.intent is not None:
        kept = flight.due_at if flight.kind is PromptKind.ITERATION else None
        return apply_intent(back, flight.intent, kept, now)
    if event.busy:
        wait_ms = BUSY_RECHECK_MS if event.retry_ms is None else event.retry_ms
        return Step(_waiting_for_agent(back, flight, flight.attempts, now.plus(wait_ms)))
    return _try_again(back, flight, event.reason, now)


def _not_needed(loop: Loop, flight: Flight, decision: Decision, now: Moment) -> Step:
    """The decision came after its response seemed to have ended, and before the reminder went out: there was none."""
    return conclude(replace(loop, protocol_retry_count=loop.protocol_retry_count - 1), flight, decision, now)


def on_start_failed(loop: Loop, event: AgentStartFailed, now: Moment) -> Step:
    match loop.phase:
        case Queued(due_at, attempts):
            retry = retry_after(attempts + 1, now)
            if retry is None:
                return protocol_error(loop, f"The agent could not be started: {event.reason}", now)
            return Step(replace(loop, phase=Queued(due_at, attempts + 1, retry)))
        case Running(flight) if flight.delivery is Delivery.PENDING:
            return _try_again(loop, flight, event.reason, now)
        case _:
            return Step(loop)


def _try_again(loop: Loop, flight: Flight, reason: str, now: Moment) -> Step:
    attempts = flight.attempts + 1
    retry = retry_after(attempts, now)
    if retry is None:
        what = "The reminder" if flight.kind is PromptKind.REMINDER else "The iteration"
        return protocol_error(loop, f"{what} could not be handed to the agent: {reason}", now)
    return Step(_waiting_for_agent(loop, flight, attempts, retry))


def _waiting_for_agent(loop: Loop, flight: Flight, attempts: int, retry: Moment) -> Loop:
    if flight.kind is PromptKind.ITERATION:
        return replace(loop, phase=Queued(flight.due_at, attempts, retry))
    return replace(loop, phase=Running(replace(flight, delivery=Delivery.PENDING, attempts=attempts, retry=retry)))


def on_decision(loop: Loop | None, event: DecisionCalled, now: Moment) -> Step:
    """The first valid call of an iteration stands; everything else is an error the model can read."""
    if loop is None or event.stamp is None:
        return refuse(loop, _NOT_RUNNING)
    flight = _current(loop, event.stamp)
    due = flight is not None and flight.delivery is Delivery.PENDING  # the prompt of it has not gone out
    if flight is None or (due and (flight.kind is not PromptKind.REMINDER or flight.intent is not None)):
        return refuse(loop, _NOT_RUNNING)
    if flight.decision is not None:
        verb = flight.decision.verb
        return refuse(loop, f"decision already recorded for this iteration ({verb}); end your turn now")
    call = decisions.parse(event.arguments, flight.rhythm, flight.min_delay_ms, flight.max_delay_ms)
    if isinstance(call, decisions.Fault):
        return refuse(loop, f"loop_control was refused: {call.message}. Call it again, corrected.")
    decision = Decision(call.verb, call.summary, call.evidence, call.next_delay_ms, flight.iteration, now.wall)
    recorded = replace(with_flight(loop, replace(flight, decision=decision)), last_decision=decision)
    reply = Reply(True, f"loop_control recorded: {call.verb}. End your turn now.")
    if due:  # it decided after all, and before it was reminded: the iteration had settled already
        return replace(conclude(replace(recorded, last_settled_at=now.wall), flight, decision, now), reply=reply)
    return Step(recorded, reply=reply)


def on_settled(loop: Loop, event: IterationSettled, now: Moment) -> Step:
    flight = _current(loop, event.stamp)
    if flight is None or flight.delivery is Delivery.PENDING:
        return Step(loop)
    settled = replace(loop, llm_calls=loop.llm_calls + event.turns, last_settled_at=now.wall)
    if flight.decision is not None:
        return conclude(settled, flight, flight.decision, now)
    if flight.intent is Intent.STOP:
        return stop(settled, now)
    if isinstance(settled.phase, Paused):
        return Step(replace(settled, phase=replace(settled.phase, flight=None)))
    if flight.intent is not None:
        return apply_intent(settled, flight.intent, None, now)
    if event.aborted in INTERRUPTING:
        return Step(pause(settled, PauseReason.INTERRUPTED))
    if event.again_ms is not None:
        return Step(_again(settled, flight, now.plus(event.again_ms)))
    return _omitted(settled, flight, event, now)


def _again(loop: Loop, flight: Flight, when: Moment) -> Loop:
    """The same iteration, not counted again: its prompt waits for its time."""
    kind = flight.kind if flight.kind is PromptKind.REMINDER else PromptKind.AGAIN
    return replace(loop, phase=Running(replace(flight, kind=kind, delivery=Delivery.PENDING, attempts=0, retry=when)))


def on_redelivery_ended(loop: Loop, event: RedeliveryEnded, now: Moment) -> Step:
    """The interrupted iteration stays as it is: without a decision, or interrupted by a person."""
    match loop.phase:
        case Running(flight) if flight.kind is PromptKind.AGAIN and flight.delivery is Delivery.PENDING:
            if event.aborted in INTERRUPTING:
                return Step(pause(loop, PauseReason.INTERRUPTED))
            stamp = loop.stamp()
            assert stamp is not None
            return _omitted(loop, flight, IterationSettled(stamp, event.idle), now)
        case _:
            return Step(loop)


def _omitted(loop: Loop, flight: Flight, event: IterationSettled, now: Moment) -> Step:
    """No valid decision: one reminder an iteration, five a loop (L-70..L-78, D-06)."""
    because = f" The last error was: {event.error}" if event.error else ""
    if event.aborted is AbortReason.WATCHDOG:
        because = f" It was ended because the agent had been silent for too long.{because}"
    if flight.retry_used:
        text = f"Iteration {flight.iteration} settled without a valid loop_control decision, also after a reminder."
        return protocol_error(loop, text + because, now)
    if loop.protocol_retry_count >= PROTOCOL_RETRY_CEILING:
        used = f"all {PROTOCOL_RETRY_CEILING} reminders of the loop are used"
        text = f"Iteration {flight.iteration} settled without a valid loop_control decision and {used}."
        return protocol_error(loop, text + because, now)
    pending = replace(
        flight, kind=PromptKind.REMINDER, delivery=Delivery.PENDING, retry_used=True, attempts=0, retry=None
    )
    reminded = replace(loop, phase=Running(pending), protocol_retry_count=loop.protocol_retry_count + 1)
    return launch_reminder(reminded, pending) if event.idle else Step(reminded)


def conclude(loop: Loop, flight: Flight, decision: Decision, now: Moment) -> Step:
    """A settled iteration with an accepted decision. Order: X-29, X-30, D-10, D-37."""
    if flight.intent is Intent.STOP:
        return stop(loop, now)
    if decision.verb in FINAL_VERBS:
        return decided(loop, decision, now.wall, now)
    if isinstance(loop.phase, Paused):
        return Step(replace(loop, phase=replace(loop.phase, flight=None)))
    if decision.verb is Verb.BLOCK:
        return decided(loop, decision, now.wall, now)
    if loop.iteration_count >= loop.policy.max_iterations:
        return iteration_limit(loop, now)
    due = now.plus(next_delay_ms(loop, flight, decision))
    if flight.intent is not None:
        return apply_intent(loop, flight.intent, due.wall, now)
    return Step(replace(loop, phase=Waiting(due)))


def on_lost(loop: Loop, event: AgentLost, now: Moment) -> Step:
    """The agent died. Between iterations the next wake brings it back; in one it is an error (D-53)."""
    flight = loop.flight
    if flight is None or flight.delivery is Delivery.PENDING:
        return Step(loop)
    lost = replace(loop, llm_calls=loop.llm_calls + event.turns, last_settled_at=now.wall)
    if flight.decision is not None:
        return conclude(lost, flight, flight.decision, now)
    if isinstance(lost.phase, Paused):
        return Step(replace(lost, phase=replace(lost.phase, flight=None)))
    if flight.intent is not None:
        return apply_intent(lost, flight.intent, None, now)
    told = flight.delivery is Delivery.ACCEPTED or UNKNOWN_ARRIVAL in event.reason
    arrived = "" if told else "; whether the prompt had arrived is unknown"
    ended = "was ended" if UNKNOWN_ARRIVAL in event.reason else "ended"
    text = f"The agent {ended} during iteration {flight.iteration}: {event.reason}{arrived}."
    return protocol_error(lost, text, now)


def apply_intent(loop: Loop, intent: Intent, next_due_at: int | None, now: Moment) -> Step:
    match intent:
        case Intent.STOP:
            return stop(loop, now)
        case Intent.PAUSE:
            return Step(pause(loop, PauseReason.USER, next_due_at))
        case Intent.FORK:
            return Step(pause(loop, PauseReason.FORK, next_due_at))


def _current(loop: Loop, stamp: Stamp) -> Flight | None:
    return loop.flight if stamp == loop.stamp() else None


def with_flight(loop: Loop, flight: Flight) -> Loop:
    if isinstance(loop.phase, Paused):
        return replace(loop, phase=replace(loop.phase, flight=flight))
    return replace(loop, phase=Running(flight))
