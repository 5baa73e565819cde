"""The heartbeat's machine: one row a rule, and random lives of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopsup.cli.heartbeat_words import heartbeat_words
from loopsup.core.heartbeat import (
    Beaten,
    Begin,
    End,
    Event,
    Found,
    GoOn,
    Halt,
    Heartbeat,
    Rest,
    Shut,
    Time,
    beats,
    next_beat,
    next_due,
    step,
)
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.model import Moment
from loopsup.wire.heartbeat import decode_file, encode_file, status_of
from tests.support.script import T0

LIVE = Heartbeat(10 * MINUTE, False, T0.wall + DAY, T0.plus(10 * MINUTE))
USER = Heartbeat(10 * MINUTE, False, T0.wall + DAY, None, Rest.USER)
CLOSED = Heartbeat(10 * MINUTE, False, T0.wall + DAY, None, Rest.SESSION_CLOSED)


def after(heartbeat: Heartbeat | None, event: Event, now: Moment = T0) -> Heartbeat | None:
    return step(heartbeat, event, now).heartbeat


@pytest.mark.parametrize(
    ("heartbeat", "event", "ok", "then"),
    [
        (None, Begin(10 * MINUTE), True, LIVE),
        (USER, Begin(10 * MINUTE), True, LIVE),
        (None, Begin(SECOND - 1), False, None),
        (None, Begin(MINUTE - 1, ask=True), False, None),
        (LIVE, Begin(2 * HOUR, for_ms=HOUR), False, LIVE),
        (LIVE, Halt(), True, USER),
        (USER, Halt(), True, USER),
        (CLOSED, Halt(), True, CLOSED),
        (None, Halt(), False, None),
        (USER, GoOn(), True, LIVE),
        (CLOSED, GoOn(), True, LIVE),
        (LIVE, GoOn(), False, LIVE),
        (None, GoOn(), False, None),
        (LIVE, End(), True, None),
        (USER, End(), True, None),
        (None, End(), False, None),
    ],
)
def test_commands(heartbeat: Heartbeat | None, event: Event, ok: bool, then: Heartbeat | None) -> None:
    made = step(heartbeat, event, T0)
    assert made.reply is not None
    assert (made.reply.ok, made.heartbeat, made.beat, made.over) == (ok, then, False, False)
    assert made.reply.message


def test_it_beats_at_its_time_and_counts_from_there() -> None:
    assert step(LIVE, Time(), T0.plus(10 * MINUTE - 1)) == Beaten(LIVE)
    made = step(LIVE, Time(), T0.plus(10 * MINUTE))
    assert made.beat
    assert made.heartbeat == Heartbeat(
        10 * MINUTE, False, T0.wall + DAY, T0.plus(20 * MINUTE), beats=1, last_at=T0.wall + 10 * MINUTE
    )


def test_what_was_missed_is_one_beat() -> None:
    made = step(LIVE, Time(), T0.plus(5 * HOUR))
    assert made.beat
    assert made.heartbeat is not None
    assert (made.heartbeat.beats, made.heartbeat.due) == (1, T0.plus(5 * HOUR + 10 * MINUTE))


def test_a_clock_set_back_does_not_silence_it() -> None:
    assert step(LIVE, Time(), Moment(T0.wall - DAY, T0.mono + 10 * MINUTE)).beat


def test_it_ends_by_itself() -> None:
    assert step(LIVE, Time(), T0.plus(DAY)) == Beaten(None, over=True)
    assert step(USER, Time(), T0.plus(DAY)) == Beaten(None, over=True)
    made = step(CLOSED, GoOn(), T0.plus(DAY))
    assert made.reply is not None
    assert not made.reply.ok


@pytest.mark.parametrize("late", [0, 20])
def test_the_one_that_is_due_at_the_end_still_comes(late: int) -> None:
    heartbeat, now = after(None, Begin(2 * SECOND, for_ms=6 * SECOND)), T0
    told = []
    while heartbeat is not None:
        due = next_due(heartbeat)
        assert due is not None
        promised, now = next_beat(heartbeat), due.plus(late)
        made = step(heartbeat, Time(), now)
        assert made.beat == (promised is not None), "what is announced comes, and nothing else"
        told.append((made.beat, made.over))
        heartbeat = made.heartbeat
    assert told == [(True, False)] * 3 + [(False, True)]


def test_where_no_other_one_fits_it_ends_in_time_and_announces_none() -> None:
    heartbeat = after(after(None, Begin(10 * MINUTE, for_ms=15 * MINUTE)), Time(), T0.plus(10 * MINUTE))
    assert heartbeat is not None
    assert (next_beat(heartbeat), next_due(heartbeat)) == (None, T0.plus(15 * MINUTE))
    status = status_of(heartbeat)
    assert status is not None
    assert (status["state"], status["nextAt"]) == ("active", None)
    assert "no more before it ends at" in heartbeat_words(status, T0.wall, None)


def test_a_close_and_a_death_are_pauses_and_a_reload_is_neither() -> None:
    assert after(LIVE, Shut()) == CLOSED
    assert after(USER, Shut()) == USER
    assert after(LIVE, Found()) == Heartbeat(10 * MINUTE, False, T0.wall + DAY, None, Rest.SUPERVISOR_LOST)
    assert after(CLOSED, Found()) == CLOSED
    rebooted = Moment(T0.wall + 4 * MINUTE, 5)
    assert after(LIVE, Found(reload=True), rebooted) == Heartbeat(
        10 * MINUTE, False, T0.wall + DAY, rebooted.plus(6 * MINUTE)
    )
    assert after(USER, Found(reload=True)) == USER


EVENTS = st.one_of(
    st.builds(Begin, st.integers(0, 2 * HOUR), st.booleans(), st.integers(0, 2 * DAY)),
    st.sampled_from([Halt(), GoOn(), End(), Time(), Shut(), Found(), Found(reload=True)]),
)


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(EVENTS, st.integers(0, 3 * HOUR), st.integers(-DAY, DAY)), max_size=40))
def test_whatever_happens(life: list[tuple[Event, int, int]]) -> None:
    heartbeat, now = None, T0
    for event, span, jump in life:
        now = Moment(now.wall + span + (jump if span % 7 == 0 else 0), now.mono + span)
        before, made = heartbeat, step(heartbeat, event, now)
        heartbeat = made.heartbeat
        assert (made.reply is not None) == isinstance(event, Begin | Halt | GoOn | End)
        if made.beat:
            assert isinstance(event, Time)
            assert heartbeat is not None
            assert before is not None
            assert heartbeat.beats == before.beats + 1
            assert heartbeat.due == now.plus(heartbeat.every_ms), "never two beats nearer than the cadence"
        if made.reply is not None and not made.reply.ok:
            assert heartbeat == before
        if heartbeat is not None:
            assert (heartbeat.due is None) == (heartbeat.rest is not None)
            assert beats(heartbeat) == (heartbeat.rest is None)
        if isinstance(event, Shut) or event == Found():
            assert not beats(heartbeat)
        assert decode_file(encode_file(heartbeat)) == heartbeat
        assert (status_of(heartbeat) is None) == (heartbeat is None)
