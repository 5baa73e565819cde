"""The one question of the reapers, and the grace as configuration and environment say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import (
    Completed,
    Delivery,
    Failed,
    Flight,
    Loop,
    Paused,
    PauseReason,
    Phase,
    PromptKind,
    Queued,
    Running,
    Stopped,
    Waiting,
)
from loopsup.core.reaper import grace_ms, needed, pins
from tests.support.script import T0, policy_of

NOW = T0.plus(HOUR)
POLICY = policy_of("10m")
FLIGHT = Flight(3, 3, PromptKind.ITERATION, Delivery.ACCEPTED, POLICY.rhythm, MINUTE, DAY, NOW.wall)
LOOP = Loop("l", "o", POLICY, T0.wall, Waiting(NOW.plus(MINUTE)))
ACTIVE: list[Phase] = [Waiting(NOW.plus(MINUTE)), Waiting(T0), Queued(NOW.wall), Running(FLIGHT)]
REST: list[Phase] = [
    *(Paused(reason) for reason in PauseReason),
    *(Paused(reason, NOW.wall) for reason in PauseReason),
    Paused(PauseReason.DURATION_LIMIT, flight=FLIGHT),
    Completed(NOW.wall),
    Failed(NOW.wall),
    Stopped(NOW.wall),
]


@pytest.mark.parametrize("phase", ACTIVE, ids=lambda phase: type(phase).__name__)
def test_an_active_loop_keeps_its_session(phase: Phase) -> None:
    """H-14; once its time is over it does not (H-22); nor after a settled interrupt (H-24)."""
    loop = replace(LOOP, phase=phase)
    assert pins(loop, NOW)
    assert pins(loop, T0.plus(DAY - 1))
    assert not pins(loop, T0.plus(DAY))
    assert needed(loop, NOW, working=False) == "its loop is active, and nobody else fires it"
    assert needed(loop, T0.plus(DAY), working=False) is None
    assert needed(loop, NOW, working=False, interrupted=True) is None


@pytest.mark.parametrize("phase", [*REST, None], ids=str)
def test_any_other_one_does_not(phase: Phase | None) -> None:
    """H-19 to H-21: paused, ended, none at all or none that can be read."""
    loop = None if phase is None else replace(LOOP, phase=phase)
    assert not pins(loop, NOW)
    assert needed(loop, NOW, working=False) is None


@pytest.mark.parametrize("phase", [*ACTIVE, *REST, None], ids=str)
@pytest.mark.parametrize("interrupted", [False, True])
def test_work_in_hand_always_does(phase: Phase | None, interrupted: bool) -> None:
    """H-12, H-13."""
    loop = None if phase is None else replace(LOOP, phase=phase)
    assert needed(loop, NOW, working=True, interrupted=interrupted) == "its agent is at work"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("0", None),
        ("", 60_000),
        ("  ", 60_000),
        ("abc", 20_000),
        ("nan", 20_000),
        ("inf", 20_000),
        ("-3", None),
        ("5", 5_000),
        ("0.5", 500),
        ("0.0001", None),
        (None, 60_000),
    ],
)
def test_case_186_the_environment_against_60_s_of_the_configuration(said: str | None, expected: int | None) -> None:
    """D-31."""
    assert grace_ms([said, None], 60) == expected
    assert grace_ms(["", said], 60) == expected
    if said is not None and said.strip():
        assert grace_ms([said, "7"], 60) == expected, "the first name beats the second"


@pytest.mark.parametrize(("configured", "expected"), [(None, 20_000), (0, None), (60, 60_000)])
def test_the_configuration_alone(configured: int | None, expected: int | None) -> None:
    """H-09, H-10."""
    assert grace_ms([None, None], configured) == expected
