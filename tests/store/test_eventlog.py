"""The event log: numbered whole lines, tolerant reading, turns counted after a crash."""

from __future__ import annotations

from pathlib import Path

from loopsup.store.eventlog import NAME, EventWriter, Turns, count_turns, read
from loopsup.wire.events import ASSISTANT_MESSAGE, LOOP_NOTICE, TURN_END, TURN_START, USER_MESSAGE

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


def test_turns_of_the_newest_iteration_are_counted(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1)
        envelope(log, 2)
        turn(log, "b", 2)
        turn(log, "sub", 2, end=False, agent_id="helper")
        turn(log, "user", None, end=False)
        envelope(log, 2, origin="protocol")
        log.append(T0, ASSISTANT_MESSAGE, {"turnId": "c", "text": "the word assistant.turn_start"}, iteration=2)
        turn(log, "c", 2, end=False)
    assert count_turns(folder, 2, T0, "protocol") == Turns(1, ("c",))
    assert count_turns(folder, 2, T0, "loop") == Turns(0, ("c",)), (
        "and so none is, where that is not the prompt in flight"
    )
    assert count_turns(folder, 3, T0, "loop") == Turns()
    assert (folder / NAME).read_bytes().count(b'"assistant.turn_start"') == 5


def test_the_same_number_of_an_earlier_loop_does_not_count(folder: Path) -> None:
    with EventWriter.open(folder) as log:
        envelope(log, 1)
        turn(log, "a", 1, end=False)
    assert count_turns(folder, 1, T0, "loop") == Turns(1, ("a",))
    assert count_turns(folder, 1, T0 + 1, "loop") == Turns()
