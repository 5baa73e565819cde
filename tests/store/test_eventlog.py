"""The event log: numbered whole lines, tolerant reading, turns counted after a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.model import Auto, Completed, Delivery, Flight, Loop, Policy, PromptKind, Running
from loopsup.store.eventlog import NAME, EventWriter, Recount, Turns, count_turns, read, recount
from loopsup.wire.events import (
    ASSISTANT_MESSAGE,
    CONTINUITY_RECOVERY,
    LOOP_NOTICE,
    SESSION_SHUTDOWN,
    TURN_END,
    TURN_START,
    USER_MESSAGE,
)

T0 = 1_791_590_400_000


def numbers(folder: Path, since: int = 0) -> list[int]:
    return [event["seq"] for event in read(folder, since)]


def test_numbers_go_on_after_reopening_and_a_torn_line_stands_alone(folder: Path) -> None:
    assert (numbers(folder), count_turns(folder, 1, 0, "loop")) == ([], Turns())
    with EventWriter.open(folder) as log:
        first = log.append(T0, LOOP_NOTICE, {"message": "a\u2028\nb"})
    path = folder / NAME
    path.write_bytes(path.read_bytes() + b'{"v":1,"seq":2,"at":"20')
    with EventWriter.open(folder) as log:
        second = log.append(T0, LOOP_NOTICE, {"message": "c"}, iteration=1, agent_id="sub")
    assert list(read(folder)) == [first.as_json(), second.as_json()]
    assert numbers(folder, since=1) == [2]
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_type_only(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        log.append(T0, LOOP_NOTICE, {"message": 'a "type":"continuity.recovery"'})
        found = log.append(T0, CONTINUITY_RECOVERY, {"kind": "length", "attempt": 1, "waitMs": 0})
    assert list(read(folder, only=CONTINUITY_RECOVERY)) == [found.as_json()]


def test_what_is_no_event_is_skipped(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        log.append(T0, LOOP_NOTICE, {"message": "a"})
    path = folder / NAME
    good = path.read_bytes()
    damage = [
        b"",
        b"\0\0",
        b"\xff",
        b"[" * 50_000,
        b"[]",
        b"null",
        b'{"seq":true,"at":"2026-10-10T00:00:00.000Z","type":"x","data":{}}',
        b'{"seq":9007199254740990,"at":"2026-10-10T00:00:00.000Z","type":"x","data":{}}',
        b'{"seq":2,"at":"soon","type":"x","data":{}}',
        b'{"seq":2,"at":5,"type":"x","data":{}}',
        b'{"seq":2,"at":"2026-10-10T00:00:00.000Z","type":"x","data":[]}',
        b'{"seq":2,"at":"2026-10-10T00:00:00.000Z","type":"x"}',
    ]
    path.write_bytes(good + b"\n".join(damage) + b"\r\n" + good.replace(b'"seq":1', b'"seq":2'))
    assert numbers(folder) == [1, 2]


def turn(
    log: EventWriter, name: str, iteration: int | None, *, end: bool = True, agent_id: str | None = None
) -> None:
    log.append(T0, TURN_START, {"turnId": name}, iteration=iteration, agent_id=agent_id)
    if end:
        data = {"turnId": name, "stopReason": "stop"}
        log.append(T0, TURN_END, data, iteration=iteration, agent_id=agent_id)


def envelope(log: EventWriter, iteration: int, origin: str = "loop", at: int = T0) -> None:
    log.append(at, USER_MESSAGE, {"messageId": "m", "origin": origin, "text": "go"}, iteration=iteration)


def test_turns_since_the_newest_prompt_of_the_newest_iteration_are_counted(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1)
        envelope(log, 2)
        turn(log, "b", 2)
        turn(log, "sub", 2, end=False, agent_id="helper")
        turn(log, "user", None, end=False)
        log.append(T0, ASSISTANT_MESSAGE, {"turnId": "c", "text": "the word assistant.turn_start"}, iteration=2)
        turn(log, "c", 2, end=False)
        log.append(T0, USER_MESSAGE, {"messageId": "m", "origin": ["odd"], "text": "x"}, iteration=2)
    assert count_turns(folder, 2, T0, "loop") == Turns(2, ("c",))
    assert count_turns(folder, 3, T0, "loop") == Turns()
    assert (folder / NAME).read_bytes().count(b'"assistant.turn_start"') == 5


def test_the_turns_before_a_reminder_are_counted_already(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1, end=False)
        assert count_turns(folder, 1, T0, "protocol") == Turns(0, ("a",))  # lost before the reminder was noted
        envelope(log, 1, origin="protocol")
        turn(log, "b", 1)
    assert count_turns(folder, 1, T0, "protocol") == Turns(1, ())


def test_the_same_number_of_an_earlier_loop_does_not_count(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1, end=False)
    assert count_turns(folder, 1, T0, "loop") == Turns(1, ("a",))
    assert count_turns(folder, 1, T0 + 1, "loop") == Turns()


@pytest.mark.parametrize(("kind", "turns"), [(PromptKind.ITERATION, 1), (PromptKind.REMINDER, 0)])
def test_a_lost_iteration_is_recounted_and_its_open_turns_get_an_end(
    folder: Path, kind: PromptKind, turns: int
) -> None:
    flight = Flight(1, 1, kind, Delivery.ACCEPTED, Auto(), 1, 2, T0)
    loop = Loop("l", "o", Policy(Auto()), T0, Running(flight))
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1, end=False)
    lost = {"kind": "lost", "message": "the supervisor was lost"}
    end = {"turnId": "a", "stopReason": "error", "error": lost}
    assert recount(folder, loop) == Recount(turns, 1, (end,))
    assert recount(folder, replace(loop, phase=Completed(T0))) == Recount(0, 1, (end,)), "not the loop's any more"
    assert recount(folder, None) == Recount(0, 1, (end,))


@pytest.mark.parametrize("flying", [False, True])
def test_a_turn_outside_of_iterations_gets_its_end_too(folder: Path, flying: bool) -> None:
    """A-08, D-44: a person's, while no iteration is in flight or one waits for it."""
    flight = Flight(2, 2, PromptKind.ITERATION, Delivery.PENDING, Auto(), 1, 2, T0)
    loop = Loop("l", "o", Policy(Auto()), T0, Running(flight)) if flying else None
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1)
        turn(log, "b", None, end=False)
        turn(log, "sub", None, end=False, agent_id="helper")
    found = recount(folder, loop)
    assert (found.turns, found.iteration) == (0, None)
    assert [end["turnId"] for end in found.ends] == ["b"]
    with EventWriter.open(folder) as log:
        log.append(T0, TURN_END, found.ends[0], iteration=found.iteration)
    assert recount(folder, loop).ends == ()


def test_what_was_closed_in_order_left_nothing_open(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        turn(log, "a", None, end=False)
        log.append(T0, SESSION_SHUTDOWN, {"reason": "command"})
    assert recount(folder, None) == Recount()
