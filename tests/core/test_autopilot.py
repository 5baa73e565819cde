"""When an autopilot is reminded (A-19..A-23, D-30)."""

from __future__ import annotations

import itertools

import pytest

from loopsup.core.autopilot import REMINDER, remind


def test_only_a_run_that_just_stopped_is_reminded() -> None:
    for completed, error, aborted in itertools.product((False, True), repeat=3):
        expected = not (completed or error or aborted)
        assert remind(1, completed=completed, error=error, aborted=aborted) is expected


@pytest.mark.parametrize(("left", "reminded"), [(5, True), (1, True), (0, False)])
def test_the_bound(left: int, reminded: bool) -> None:
    assert remind(left, completed=False, error=False, aborted=False) is reminded


def test_the_words() -> None:
    """A-20, A-21."""
    for said in ("task_complete", "stop planning", "fully completed", "open questions", "error", "steps remain"):
        assert said in REMINDER
