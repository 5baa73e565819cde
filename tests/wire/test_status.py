"""The status object in every state and pause reason; the truth rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopsup.core.events import Opened
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
    Policy,
    PromptKind,
    Queued,
    Running,
    Stopped,
    Verb,
    Waiting,
)
from loopsup.core.step import advance
from loopsup.wire.attention import attention_object
from loopsup.wire.status import Lost, PendingQuestion, SessionFacts, lost_of, status_object, without_owner

T0 = 1_791_590_400_000
MIN = 60_000
HOUR = 60 * MIN
NOW = Moment(T0 + 5 * MIN, 0)
DUE = Moment(T0 + 10 * MIN, 9)
SESSION = SessionFacts("work", "s1", "demo", "a1", "/s/a1.jsonl", "/work", True, True, 42, 1, None)
LOOP = Loop("l1", "look", Policy(Fixed(10 * MIN)), T0, Waiting(DUE), 3, 1, 4, 9)
FLIGHT = Flight(3, 5, PromptKind.ITERATION, Delivery.ACCEPTED, Fixed(10 * MIN), MIN, 60 * MIN, T0 + 4 * MIN)


def loop_of(loop: Loop, now: Moment = NOW, **live: Any) -> dict[str, Any]:
    shown: dict[str, Any] = status_object(SESSION, loop, now, **live)["loop"]
    return shown


def test_of_a_loop_that_ticks_drive_it_says_when_one_last_came() -> None:
    ticked = replace(LOOP, driver=Driver.TICK)
    session = replace(SESSION, alive=False, last_tick_at=T0)
    shown: dict[str, Any] = status_object(session, without_owner(ticked, NOW), NOW)["loop"]
    told = {key: shown[key] for key in ("state", "driver", "lastTickAt", "late")}
    assert told == {"state": "waiting", "driver": "tick", "lastTickAt": "2026-10-10T00:00:00.000Z", "late": False}
    assert lost_of(ticked, T0) is None
    late = Moment(DUE.wall + 6_000, 0)
    assert loop_of(ticked, late)["late"]
    assert loop_of(ticked, late)["lastTickAt"] is None


def with_phase(phase: Phase) -> Loop:
    return replace(LOOP, phase=phase)


def test_the_whole_object() -> None:
    attention = Attention(AttentionStatus.BLOCKED, "s", "agent", "t", 2, 50, 1, 1, 2, T0, T0)
    loop = replace(LOOP, last_decision=Decision(Verb.CONTINUE, "s", "e", None, 3, T0 + MIN), last_attention=attention)
    question = PendingQuestion("q1", "permission", "bash", "rm?", T0, T0 + 5 * MIN)
    assert status_object(SESSION, loop, NOW, turns=2, question=question) == {
        "version": 1,
        "session": {
            "name": "work",
            "id": "s1",
            "agent": "demo",
            "agentSessionId": "a1",
            "file": "/s/a1.jsonl",
            "cwd": "/work",
            "supervisor": {"alive": True, "responding": True, "pid": 42},
            "clients": 1,
            "problem": None,
            "parked": False,
        },
        "loop": {
            "id": "l1",
            "objective": "look",
            "state": "waiting",
            "pauseReason": None,
            "intent": None,
            "late": False,
            "iterationCount": 3,
            "maxIterations": 50,
            "protocolRetryCount": 1,
            "promptsSent": 4,
            "llmCalls": 11,
            "rhythm": {"kind": "fixed", "everyMs": 600_000},
            "minDelayMs": 60_000,
            "maxDelayMs": 86_400_000,
            "forMs": 86_400_000,
            "misfire": "once",
            "startedAt": "2026-10-10T00:00:00.000Z",
            "deadlineAt": "2026-10-11T00:00:00.000Z",
            "calendarElapsedMs": 300_000,
            "deadlineRemainingMs": 86_100_000,
            "nextDueAt": "2026-10-10T00:10:00.000Z",
            "driver": "resident",
            "lastTickAt": None,
            "lastMissed": None,
            "lastDecision": {
                "decision": "continue",
                "summary": "s",
                "evidence": "e",
                "nextDelayMs": None,
                "iteration": 3,
                "at": "2026-10-10T00:01:00.000Z",
            },
            "question": {
                "id": "q1",
                "kind": "permission",
                "tool": "bash",
                "text": "rm?",
                "since": "2026-10-10T00:00:00.000Z",
                "expiresAt": "2026-10-10T00:05:00.000Z",
            },
            "recovery": None,
            "lost": None,
            "lastAttention": attention_object(attention, "look", SESSION.for_attention()),
        },
    }


def test_no_loop_is_null() -> None:
    assert status_object(SESSION, None, NOW)["loop"] is None


def test_the_auto_rhythm_shows_its_range() -> None:
    assert loop_of(replace(LOOP, policy=Policy(Auto(), MIN, 2 * MIN)))["rhythm"] == {
        "kind": "auto",
        "minDelayMs": 60_000,
        "maxDelayMs": 120_000,
    }


@pytest.mark.parametrize(
    ("phase", "state", "pause_reason", "due"),
    [
        (Waiting(DUE), "waiting", None, "2026-10-10T00:10:00.000Z"),
        (Queued(T0 + 4 * MIN), "queued", None, "2026-10-10T00:04:00.000Z"),
        (Running(FLIGHT), "running", None, None),
        (Completed(T0 + MIN), "completed", None, None),
        (Failed(T0 + MIN), "failed", None, None),
        (Stopped(T0 + MIN), "stopped", None, None),
        *[(Paused(reason, T0 + 10 * MIN), "paused", reason.value, None) for reason in PauseReason],
    ],
)
def test_states_and_pause_reasons(phase: Phase, state: str, pause_reason: str | None, due: str | None) -> None:
    shown = loop_of(with_phase(phase))
    assert (shown["state"], shown["pauseReason"], shown["nextDueAt"]) == (state, pause_reason, due)


@pytest.mark.parametrize("phase", [Waiting(Moment(T0 + 86_400_000, 0)), Queued(T0 + 86_400_001)])
def test_a_wake_at_the_deadline_or_later_is_none(phase: Phase) -> None:
    shown = loop_of(with_phase(phase), Moment(T0 + 86_500_000, 0))
    assert (shown["nextDueAt"], shown["late"], shown["deadlineRemainingMs"]) == (None, False, 0)


@pytest.mark.parametrize(
    ("phase", "behind_ms", "late"),
    [
        (Waiting(DUE), 5000, False),
        (Waiting(DUE), 5001, True),
        (Queued(DUE.wall), 5001, True),
        (Running(replace(FLIGHT, due_at=DUE.wall)), 60_000, False),
        (Paused(PauseReason.USER, DUE.wall), 60_000, False),
    ],
)
def test_late_is_more_than_five_seconds_without_hand_over(phase: Phase, behind_ms: int, late: bool) -> None:
    assert loop_of(with_phase(phase), Moment(DUE.wall + behind_ms, 0))["late"] is late


@pytest.mark.parametrize(
    ("intent", "shown"), [(None, None), (Intent.PAUSE, "pause"), (Intent.FORK, "pause"), (Intent.STOP, "stop")]
)
def test_intent(intent: Intent | None, shown: str | None) -> None:
    assert loop_of(with_phase(Running(replace(FLIGHT, intent=intent))))["intent"] == shown


@pytest.mark.parametrize("phase", [Completed(T0 + MIN), Failed(T0 + MIN), Stopped(T0 + MIN)])
def test_the_clock_of_an_ended_loop_stands(phase: Phase) -> None:
    shown = loop_of(with_phase(phase), Moment(T0 + 10**9, 0))
    assert (shown["calendarElapsedMs"], shown["deadlineRemainingMs"]) == (60_000, 86_340_000)


def test_a_clock_set_back_gives_no_negative_time() -> None:
    shown = loop_of(LOOP, Moment(T0 - 10**9, 0))
    assert (shown["calendarElapsedMs"], shown["deadlineRemainingMs"]) == (0, 86_400_000 + 10**9)


@pytest.mark.parametrize(
    ("phase", "after"),
    [
        (Waiting(DUE), Paused(PauseReason.SUPERVISOR_LOST, DUE.wall)),
        (Queued(T0 + 1), Paused(PauseReason.SUPERVISOR_LOST, T0 + 1)),
        (Running(FLIGHT), Paused(PauseReason.SUPERVISOR_LOST)),
        *[(Paused(reason, 5), Paused(reason, 5)) for reason in PauseReason],
        (Completed(5), Completed(5)),
        (Failed(5), Failed(5)),
        (Stopped(5), Stopped(5)),
    ],
)
def test_without_an_owner_nothing_is_active(phase: Phase, after: Phase) -> None:
    assert without_owner(with_phase(phase), NOW) == with_phase(after)


def test_without_an_owner_an_accepted_decision_is_told() -> None:
    """A supervisor that died between acceptance and settlement: the agent's word stands (D-44)."""
    decision = Decision(Verb.COMPLETE, "s", "e", None, FLIGHT.iteration, T0 + 7)
    left = without_owner(with_phase(Running(replace(FLIGHT, decision=decision))), NOW)
    assert left is not None
    assert left.phase == Completed(T0 + 7)


@pytest.mark.parametrize(
    "phase",
    [Waiting(DUE), Queued(T0 + 1), Paused(PauseReason.USER, DUE.wall), Paused(PauseReason.SESSION_CLOSED)],
)
@pytest.mark.parametrize("driver", list(Driver))
def test_without_an_owner_a_deadline_that_passed_is_told(phase: Phase, driver: Driver) -> None:
    """As the next opening will record it (L-102), and not a millisecond before."""
    loop = replace(LOOP, phase=phase, driver=driver)
    before = without_owner(loop, Moment(loop.deadline_at - 1, 0))
    assert before is not None
    assert before.phase != Paused(PauseReason.DURATION_LIMIT)
    late = Moment(loop.deadline_at + HOUR, 0)
    told = without_owner(loop, late)
    assert told is not None
    assert (told.phase, told) == (Paused(PauseReason.DURATION_LIMIT), advance(loop, Opened(), late)[-1].loop)
    assert told.last_attention is not None
    assert (told.last_attention.ended_at, told.last_attention.observed_at) == (loop.deadline_at, late.wall)
    ended = replace(loop, phase=Completed(T0 + MIN))
    assert without_owner(ended, late) == ended


def test_without_an_owner_no_loop_stays_none() -> None:
    assert without_owner(None, NOW) is None


def test_an_agent_without_an_id_is_named_by_the_session() -> None:
    assert replace(SESSION, agent_session_id=None, file=None).for_attention().id == "s1"


def test_what_a_dead_supervisor_left() -> None:
    flight = Flight(3, 5, PromptKind.ITERATION, Delivery.SENT, Fixed(600_000), 60_000, 86_400_000, T0)
    decided = replace(flight, decision=Decision(Verb.COMPLETE, "s", "e", None, 3, T0), delivery=Delivery.ACCEPTED)

    def left(phase: Phase) -> Lost | None:
        return lost_of(Loop("l", "o", Policy(Fixed(600_000)), T0, phase), T0 + 7)

    assert lost_of(None, T0) is None
    assert left(Paused(PauseReason.USER)) is None
    assert left(Completed(T0)) is None
    assert left(Waiting(Moment(T0, 0))) == left(Queued(T0)) == Lost(T0 + 7)
    assert left(Running(flight)) == Lost(T0 + 7, 3, "sent")
    assert left(Running(decided)) == Lost(T0 + 7, 3, "accepted", "complete")
    assert left(Paused(PauseReason.DURATION_LIMIT, flight=flight)) == Lost(T0 + 7, 3, "sent")
