"""What a person's command does to a loop. A refused command changes nothing."""

from __future__ import annotations

from dataclasses import replace

from loopsup.core import policy as policies
from loopsup.core.effects import Step
from loopsup.core.events import Close, Pause, Resume, Start, Stop, Update
from loopsup.core.lifecycle import conclude_closed
from loopsup.core.misfire import Held, Why
from loopsup.core.model import (
    TERMINAL,
    Delivery,
    Driver,
    Fixed,
    Flight,
    Intent,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Policy,
    Queued,
    Running,
    Waiting,
)
from loopsup.core.moves import (
    ATTENTION_REASONS,
    back_under_latch,
    deadline_armed,
    done,
    due_or_queued,
    expire,
    iteration_limit,
    pause,
    refuse,
    stop,
    unfired,
    wake,
)
from loopsup.core.reasons import words

NO_LOOP = "there is no loop in this session; start one with `loopsup start`"
_UNREADABLE = "the loop's state was written by another version of loopsup; only status and stop work on it"


def on_start(loop: Loop | None, event: Start, now: Moment) -> Step:
    if loop is not None and not loop.terminal:
        return refuse(
            loop,
            f"this session has a loop already ({_described(loop)}); {_way_on(loop)}, "
            "or start a second session beside it with --session NAME",
        )
    if not event.objective.strip():
        return refuse(loop, "the objective is blank", "usage")
    checked = policies.check(event.policy, event.after_ms)
    if checked.faults:
        return refuse(loop, "; ".join(checked.faults), "usage")
    fresh = Loop(event.loop_id, event.objective, event.policy, now.wall, Queued(now.wall), driver=event.driver)
    step = due_or_queued(fresh, now.wall + (event.after_ms or 0), now, event.idle)
    return done(step, "the loop is started", checked.warnings)


def on_pause(loop: Loop | None, event: Pause, now: Moment) -> Step:
    if loop is None:
        return refuse(loop, NO_LOOP, "not_found")
    match loop.phase:
        case Waiting(due):
            return done(Step(pause(loop, PauseReason.USER, due.wall)), "the loop is paused")
        case Queued(due_at=due_at):
            return done(Step(pause(loop, PauseReason.USER, due_at)), "the loop is paused")
        case Running(flight):
            return _pause_running(loop, flight)
        case Paused(reason):
            return done(Step(loop), f"the loop is paused already ({words(reason)})")
        case _:
            return _ended(loop)


def _pause_running(loop: Loop, flight: Flight) -> Step:
    if flight.delivery is Delivery.PENDING:
        return done(Step(pause(loop, PauseReason.USER)), "the loop is paused")
    if flight.intent is Intent.STOP:
        return refuse(loop, "the loop stops when the running iteration settles; it cannot be paused any more")
    message = "the loop pauses when the running iteration settles"
    if flight.intent is Intent.PAUSE:
        return done(Step(loop), message)
    return done(Step(_intend(loop, flight, Intent.PAUSE)), message)


def on_stop(loop: Loop | None, event: Stop, now: Moment) -> Step:
    if loop is None:
        return refuse(loop, NO_LOOP, "not_found")
    if loop.terminal:
        return _ended(loop)
    match loop.phase:
        case Running(flight) if flight.delivery is not Delivery.PENDING:
            message = "the loop stops when the running iteration settles (`loopsup abort` ends that one now)"
            if flight.intent is Intent.STOP:
                return done(Step(loop), message)
            return done(Step(_intend(loop, flight, Intent.STOP)), message)
        case _:
            return done(stop(loop, now), "the loop is stopped")


def on_resume(loop: Loop | None, event: Resume, now: Moment) -> Step:
    if loop is None:
        return refuse(loop, NO_LOOP, "not_found")
    match loop.phase:
        case Paused():
            return _resume_paused(loop, loop.phase, now, event.idle)
        case Running(flight):
            return _withdraw(loop, flight)
        case Waiting() | Queued():
            return refuse(loop, f"the loop is not paused ({loop.state})")
        case _:
            return _ended(loop)


def _withdraw(loop: Loop, flight: Flight) -> Step:
    match flight.intent:
        case Intent.STOP:
            return refuse(loop, "the loop stops when the running iteration settles; a stop cannot be taken back")
        case Intent.FORK:
            return refuse(
                loop, "the conversation divides: the loop pauses when the iteration settles; resume it then"
            )
        case None:
            return refuse(loop, "the loop is not paused (running)")
        case Intent.PAUSE:
            return done(Step(_intend(loop, flight, None)), "the pending pause is withdrawn")


def _resume_paused(loop: Loop, paused: Paused, now: Moment, idle: bool) -> Step:
    if paused.reason is PauseReason.UNKNOWN_VERSION:
        return refuse(loop, _UNREADABLE)
    late = "the deadline has passed; extend it first with `loopsup update --for …` (counted from the start)"
    if loop.deadline_expired:
        return refuse(loop, late)
    if now.wall >= loop.deadline_at:
        return replace(expire(loop, now), reply=refuse(loop, late).reply)
    if paused.flight is not None:
        running = replace(loop, phase=Running(paused.flight))
        return done(Step(running), "the loop goes on with the iteration under way")
    if loop.iteration_count >= loop.policy.max_iterations:
        used = f"{loop.iteration_count} of {loop.policy.max_iterations} iterations are used"
        return refuse(loop, f"{used}; raise the limit first with `loopsup update --max-iterations …`")
    kept = None if paused.reason in ATTENTION_REASONS else paused.next_due_at
    if kept is None or kept > now.wall:
        return done(due_or_queued(loop, now.wall if kept is None else kept, now, idle), "the loop goes on")
    why = Why(paused.reason.value)
    if loop.driver is Driver.TICK:  # the next tick judges what is past
        past = Waiting(now.plus(kept - now.wall), Held(why, now.wall))
        return done(Step(replace(loop, phase=past)), "the loop goes on")
    step = wake(loop, kept, now.wall - kept, why, now, idle)
    skipped = step.loop is not None and isinstance(step.loop.phase, Waiting)
    return done(step, "the loop goes on" + ("; the wake it missed is skipped" if skipped else ""))


def on_update(loop: Loop | None, event: Update, now: Moment) -> Step:
    if loop is None:
        return refuse(loop, NO_LOOP, "not_found")
    if loop.terminal:
        return _ended(loop)
    if isinstance(loop.phase, Paused) and loop.phase.reason is PauseReason.UNKNOWN_VERSION:
        return refuse(loop, _UNREADABLE)
    if event == Update():
        return refuse(loop, "update needs at least one option", "usage")
    policy = Policy(
        rhythm=loop.policy.rhythm if event.rhythm is None else event.rhythm,
        min_delay_ms=loop.policy.min_delay_ms if event.min_delay_ms is None else event.min_delay_ms,
        max_delay_ms=loop.policy.max_delay_ms if event.max_delay_ms is None else event.max_delay_ms,
        for_ms=loop.policy.for_ms if event.for_ms is None else event.for_ms,
        max_iterations=loop.policy.max_iterations if event.max_iterations is None else event.max_iterations,
        misfire=loop.policy.misfire if event.misfire is None else event.misfire,
    )
    faults = policies.check(policy).faults
    if faults:
        return refuse(loop, "; ".join(faults), "usage")
    reduced = policy.max_iterations < loop.policy.max_iterations
    updated = replace(loop, policy=policy)
    if isinstance(event.rhythm, Fixed):
        updated = _reschedule(updated, event.rhythm.every_ms, now)
    return done(_enforce(updated, reduced, now), "the loop is updated")


def _reschedule(loop: Loop, every_ms: int, now: Moment) -> Loop:
    """A new interval counts from the last settlement; a wake that is past by it is due now (D-17)."""
    if loop.last_settled_at is None:
        return loop
    due = min(max(now.wall, loop.last_settled_at + every_ms), now.wall + every_ms)
    match loop.phase:
        case Waiting():
            return replace(loop, phase=Waiting(now.plus(due - now.wall)))
        case Paused(next_due_at=int()):
            return replace(loop, phase=replace(loop.phase, next_due_at=due))
        case _:
            return loop


def _enforce(loop: Loop, reduced: bool, now: Moment) -> Step:
    """A limit reduced to what is used already takes hold at once, except under a running iteration (L-34)."""
    if (deadline_armed(loop) and now.wall >= loop.deadline_at) or back_under_latch(loop):
        return expire(loop, now)
    if not reduced or loop.iteration_count < loop.policy.max_iterations:
        return Step(loop)
    match loop.phase:
        case Running() | Paused(reason=PauseReason.ITERATION_LIMIT | PauseReason.DURATION_LIMIT):
            return Step(loop)
        case _:
            return iteration_limit(loop, now)


def on_close(loop: Loop | None, event: Close, now: Moment) -> Step:
    """The session ends: an active loop is persisted as paused; it never re-arms by itself (L-109)."""
    if loop is None or loop.terminal:
        return done(Step(loop), "the session is closed")
    if event.leaving and loop.driver is Driver.TICK:
        loop = unfired(loop, now)
    match loop.phase:
        case Waiting() if event.leaving and loop.driver is Driver.TICK:
            step = Step(loop)
        case Waiting(due):
            step = Step(pause(loop, PauseReason.SESSION_CLOSED, due.wall))
        case Queued(due_at=due_at):
            step = Step(pause(loop, PauseReason.SESSION_CLOSED, due_at))
        case _:
            step = conclude_closed(loop, event.turns, now, leaving=event.leaving)
    return done(step, "the session is closed")


def _intend(loop: Loop, flight: Flight, intent: Intent | None) -> Loop:
    return replace(loop, phase=Running(replace(flight, intent=intent)))


def _described(loop: Loop) -> str:
    paused = f", {words(loop.phase.reason)}" if isinstance(loop.phase, Paused) else ""
    return f"{loop.state}{paused}, iteration {loop.iteration_count} of {loop.policy.max_iterations}"


def _way_on(loop: Loop) -> str:
    paused = isinstance(loop.phase, Paused)
    return "`loopsup resume` goes on with it, `loopsup stop` ends it" if paused else "stop it first"


def _ended(loop: Loop) -> Step:
    assert loop.state in TERMINAL
    return refuse(loop, f"the loop has ended ({loop.state}); start a new one with `loopsup start`")
