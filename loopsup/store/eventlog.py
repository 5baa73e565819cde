"""`events.jsonl`: the conversation's events, stored and read back.

Not the truth (that is the journal), so no fsync per event; but counted from after a crash, so lines are whole,
numbered, and a torn one never spoils its neighbour. Readers skip what they cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from loopsup.core.model import Loop, PromptKind
from loopsup.store.files import LineFile, from_end, from_start
from loopsup.wire.events import SESSION_SHUTDOWN, TURN_END, TURN_START, USER_MESSAGE, ConversationEvent, encode
from loopsup.wire.times import parse_instant

NAME = "events.jsonl"
MAX_SEQ = 2**52  # far from any real log, and the numbers after it still fit
PROMPTS = frozenset({"loop", "protocol"})  # origins of the loop's own two prompts: an iteration starts with one


class EventWriter:
    """The owner's end of the event log."""

    def __init__(self, file: LineFile, next_seq: int) -> None:
        self._file = file
        self.next_seq = next_seq

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open for appending; a torn last line gets its line end. Only under the session's lock. StorageError."""
        file = LineFile.open(folder / NAME)
        try:
            file.end_torn_line()
            return cls(file, _next_seq(folder))
        except BaseException:
            file.close()
            raise

    def append(
        self,
        at: int,
        kind: str,
        data: Mapping[str, Any],
        *,
        iteration: int | None = None,
        agent_id: str | None = None,
    ) -> ConversationEvent:
        """Store one event (`at`: wall ms). StorageError: it is not stored and its number is free again."""
        event = ConversationEvent(self.next_seq, at, kind, data, iteration, agent_id)
        self._file.append(encode(event), durable=False)
        self.next_seq += 1
        return event

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(folder: Path, since: int = 0, only: str | None = None) -> Iterator[dict[str, Any]]:
    """The stored events with a number above `since`, oldest first, as their JSON objects.

    `only`: of this type (a long log is then passed over quickly).
    """
    mark = b"" if only is None else f'"type":"{only}"'.encode("ascii")
    for _, line in from_start(folder / NAME):
        event = _decoded(line) if line is not None and mark in line else None
        if event is not None and event["seq"] > since and only in (None, event["type"]):
            yield event


@dataclass(frozen=True, slots=True)
class Turns:
    """LLM calls of one iteration: how many started, and the ids of those that never ended."""

    started: int = 0
    open: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recount:
    """`turns` to add to the loop; `ends`: data of a turn_end for each turn left open, in `iteration` or in none."""

    turns: int = 0
    iteration: int | None = None
    ends: tuple[Mapping[str, Any], ...] = ()


def count_turns(folder: Path, iteration: int, not_before: int, origin: str) -> Turns:
    """The turns after the newest prompt `origin` of `iteration`, of the loop that started at `not_before` (wall ms).

    `origin`: "loop" for its envelope, "protocol" for its reminder (the turns before that are counted already).

    For the recount after a crash: the caller stores a turn_end for each open one, so that pairs stay equal.
    Sub-agents' turns are not counted.
    """
    ended: set[str] = set()
    started: list[str] = []
    for event in _backwards(folder):
        number = event.get("iteration")
        if parse_instant(event["at"]) < not_before or (number is not None and number != iteration):
            break
        if number is None or "agentId" in event:
            continue
        turn = str(event["data"].get("turnId"))
        if event["type"] == TURN_END:
            ended.add(turn)
        elif event["type"] == TURN_START:
            started.append(turn)
        elif event["type"] == USER_MESSAGE and str(event["data"].get("origin")) in PROMPTS:
            if event["data"]["origin"] != origin:
                return Turns(0, _unended(started, ended))
            break
    return Turns(len(started), _unended(started, ended))


def recount(folder: Path, loop: Loop | None) -> Recount:
    """What an owner that died left: LLM calls of the iteration in flight, and the ends to store for open turns."""
    flight = None if loop is None else loop.flight
    turns, iteration = Turns(), None
    if loop is not None and flight is not None:
        origin = "protocol" if flight.kind is PromptKind.REMINDER else "loop"
        turns, iteration = count_turns(folder, flight.iteration, loop.started_at, origin), flight.iteration
    if not turns.open and (left := _left_open(folder)) is not None:  # a person's turn, or one of the agent's own
        turn, iteration = left
        turns = Turns(turns.started, (turn,))
    return Recount(turns.started, iteration, tuple(_lost_turn(turn) for turn in turns.open))


def _left_open(folder: Path) -> tuple[str, int | None] | None:
    """The newest turn and its iteration, where it has not ended: there is never more than one at a time."""
    for event in _backwards(folder):
        if event["type"] == SESSION_SHUTDOWN or (event["type"] == TURN_END and "agentId" not in event):
            return None
        if event["type"] == TURN_START and "agentId" not in event:
            number = event.get("iteration")
            return str(event["data"].get("turnId")), number if type(number) is int else None
    return None


def _lost_turn(turn: str) -> Mapping[str, Any]:
    return {"turnId": turn, "stopReason": "error", "error": {"kind": "lost", "message": "the supervisor was lost"}}


def _unended(started: list[str], ended: set[str]) -> tuple[str, ...]:
    return tuple(turn for turn in reversed(started) if turn not in ended)


def _backwards(folder: Path) -> Iterator[dict[str, Any]]:
    for _, line in from_end(folder / NAME):
        event = _decoded(line)
        if event is not None:
            yield event


def newest_at(folder: Path) -> int | None:
    """The wall instant of the newest event, None where there is none. StorageError."""
    newest = next(_backwards(folder), None)
    return None if newest is None else parse_instant(newest["at"])


def _next_seq(folder: Path) -> int:
    newest = next(_backwards(folder), None)
    return 1 if newest is None else newest["seq"] + 1


def _decoded(line: bytes | None) -> dict[str, Any] | None:
    """The event of a line, None unless it has every part a reader relies on."""
    try:
        event = json.loads((line or b"").decode("utf-8"))
        parse_instant(event["at"])
        whole = (
            type(event["seq"]) is int
            and 0 <= event["seq"] < MAX_SEQ
            and isinstance(event["type"], str)
            and isinstance(event["data"], dict)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return event if whole else None
