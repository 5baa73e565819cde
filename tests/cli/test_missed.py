"""A missed wake as people and programs see it."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from loopsup.cli import history, history_rows, render
from loopsup.cli.history_missed import MissedRow
from loopsup.cli.missed_words import misfire_words, missed_words
from loopsup.core import events as ev
from loopsup.core.misfire import Done, Missed, Skip, Why, Within
from loopsup.core.model import Fixed, Policy
from tests.cli.test_history import MINUTE, POLICY, T0, Tale

MISSED: dict[str, Any] = {
    "dueAt": "2026-10-10T00:12:00.000Z",
    "missedByMs": 38 * MINUTE,
    "count": 4,
    "why": "held_up",
    "done": "woken",
}
WORDS = (
    "the wake of 00:12:00 was missed by 38m, and 3 more after it (the supervisor was stopped, held up or restarted): "
    "made up for by one wake"
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, WORDS),
        (
            {"count": 1, "why": "asleep", "done": "skipped"},
            "the wake of 00:12:00 was missed by 38m (the machine slept, or its clock was set forward): "
            "skipped, by --misfire",
        ),
        ({"why": "of\x1b[2J another version", "done": "eaten"}, None),
    ],
)
def test_in_words(change: dict[str, Any], words: str | None) -> None:
    told = missed_words({**MISSED, **change}, T0, UTC)
    assert words in (None, told)
    assert "\x1b" not in told


@pytest.mark.parametrize("why", list(Why))
@pytest.mark.parametrize("done", list(Done))
def test_every_value_has_words(why: Why, done: Done) -> None:
    told = missed_words({**MISSED, "why": why.value, "done": done.value}, T0, UTC)
    assert f"({why.value})" not in told
    assert not told.endswith(f": {done.value}")


@pytest.mark.parametrize(
    ("policy", "words"),
    [("once", "made up for once"), ("skip", "skipped"), (7_200_000, "skipped from 2h on"), ("new", "new")],
)
def test_the_policy_in_words(policy: str | int, words: str) -> None:
    assert misfire_words(policy) == words


def test_it_is_a_line_of_the_history_before_the_iteration_that_makes_up_for_it() -> None:
    tale = Tale().start().decide(MINUTE).settle(2 * MINUTE).wake(50 * MINUTE)
    rows = history_rows.reduce(tale.records, alive=True).rows
    assert rows[2] == MissedRow(T0 + 50 * MINUTE, Missed(T0 + 12 * MINUTE, 38 * MINUTE, 4, Why.HELD_UP, Done.WOKEN))
    assert len([row for row in rows if isinstance(row, MissedRow)]) == 1
    assert isinstance(rows[3], history_rows.IterationRow)
    assert history.row_object(rows[2]) == {"type": "missed", "at": "2026-10-10T00:50:00.000Z", **MISSED}
    lines = list(history.text_lines(rows, T0, 200, UTC))
    (line,) = [line for line in lines if "missed" in line]
    assert line == f"      00:50:00             {WORDS}"


def test_a_skipped_one_and_a_new_policy() -> None:
    policy = Policy(Fixed(10 * MINUTE), misfire=Skip())
    tale = Tale().start(policy=policy).decide(MINUTE).settle(2 * MINUTE)
    tale.at(50 * MINUTE, ev.Ticked(idle=True)).at(51 * MINUTE, ev.Update(misfire=Within(60 * MINUTE)))
    rows = history_rows.reduce(tale.records, alive=True).rows
    assert rows[2] == MissedRow(T0 + 50 * MINUTE, Missed(T0 + 12 * MINUTE, 38 * MINUTE, 4, Why.HELD_UP, Done.SKIPPED))
    (note,) = [row for row in rows if isinstance(row, history_rows.NoteRow)]
    assert note.text == "updated by you: what becomes of a missed wake: skipped → skipped from 1h on"


def test_one_that_a_branch_brings_back_is_not_told_again() -> None:
    tale = Tale().start().decide(MINUTE).settle(2 * MINUTE).wake(50 * MINUTE)
    tale.decide(51 * MINUTE).settle(52 * MINUTE)
    there = tale.loop
    tale.at(53 * MINUTE, ev.BranchMoved(None)).at(54 * MINUTE, ev.BranchMoved(there))
    rows = history_rows.reduce(tale.records, alive=True).rows
    assert len([row for row in rows if isinstance(row, MissedRow)]) == 1


def test_as_an_event_and_in_the_status() -> None:
    event = {"v": 1, "seq": 1, "at": "2026-10-10T00:50:00.000Z", "type": "loop.misfire", "data": MISSED}
    assert render.event_text(event, width=200, zone=UTC) == WORDS
    assert POLICY.misfire == Tale().start().records[-1].loop.policy.misfire  # type: ignore[union-attr]
