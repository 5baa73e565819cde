"""The journal of a session on disk: read from its end, read whole, appended to.

Reader and appender are separate: anybody may read, only the owner of the session's lock appends.

- Opening reads backwards to the last record, so it costs the same for a short and a long journal. Damaged
  lines met on the way are reported; damage further up is found by `read_all`.
- A last line without its line end is a record if it is a whole one, else the torn tail of a crash. The owner
  copies such a tail to `journal.jsonl.torn-<n>` and ends it with LF before anything else is written.
- An append is one write and one fsync. When it fails the journal is as before.
- Sequence numbers grow; every damaged line behind the last record uses one up, so that no number is given twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from loopsup.core.events import Event, TtsrInjection
from loopsup.core.model import Loop, Moment
from loopsup.store.files import MAX_LINE, LineFile, from_end, from_start, open_to_read, write_atomic
from loopsup.wire.journal import Damaged, Record, UnknownVersion, decode_record, encode_record

NAME = "journal.jsonl"
INJECTION = b'"ttsr_injection"'  # what only the lines of stream rules have (or an objective that quotes it)
MAX_TORN = 1000  # copies of torn tails kept; a machine that crashed this often has other troubles

_TOO_LONG = Damaged(f"it is longer than {MAX_LINE} bytes")


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line that is no record. `offset` in bytes from the start of the file."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a journal: the last record (None: there is none) and the damaged lines behind it, newest first."""

    last: Record | UnknownVersion | None
    next_seq: int
    damaged: tuple[DamagedLine, ...] = ()

    @property
    def loop(self) -> Loop | None:
        """The state."""
        return None if self.last is None else self.last.loop

    def problem(self) -> str | None:
        """One sentence about damaged lines, for people."""
        if not self.damaged:
            return None
        lines = "1 line was" if len(self.damaged) == 1 else f"{len(self.damaged)} lines were"
        newest = self.damaged[0]
        return f"{lines} skipped at the end of the journal (at byte {newest.offset}: {newest.reason})"


def read_tail(folder: Path) -> Tail:
    """The state of the session in `folder`; an empty tail where there is no journal yet. StorageError."""
    last: Record | UnknownVersion | None = None
    damaged: list[DamagedLine] = []
    behind = 0
    for offset, line in from_end(folder / NAME):
        found = _decoded(line)
        if isinstance(found, Damaged):
            if last is None:
                damaged.append(DamagedLine(offset, found.reason))
        else:
            last = found if last is None else last
            if found.seq is not None:
                return Tail(last, found.seq + 1 + behind, tuple(damaged))
        behind += 1
    return Tail(last, 1 + behind, tuple(damaged))


def find_record(folder: Path, loop_id: str, seq: int) -> Record | None:
    """The newest record of this loop with this number: what a marker on a branch stands for."""
    for _, line in from_end(folder / NAME):
        found = _decoded(line)
        if isinstance(found, Record) and found.seq == seq and found.loop is not None and found.loop.id == loop_id:
            return found
    return None


def injected_rules(folder: Path, upto: int | None = None) -> tuple[str, ...]:
    """The stream rules that have acted, as of the record `upto` (None: the newest). StorageError."""
    for _, line in from_end(folder / NAME):
        if line is None or INJECTION not in line:
            continue
        found = _decoded(line)
        if not isinstance(found, Record) or not isinstance(found.event, TtsrInjection):
            continue
        if upto is None or found.seq <= upto:
            return found.event.injected
    return ()


def read_all(folder: Path) -> Iterator[Record | UnknownVersion | DamagedLine]:
    """Every line from the first. Memory is bounded by the longest line. StorageError."""
    for offset, line in from_start(folder / NAME):
        found = _decoded(line)
        yield DamagedLine(offset, found.reason) if isinstance(found, Damaged) else found


class JournalAppender:
    """The owner's end of the journal. `tail` is what was found at opening."""

    def __init__(self, file: LineFile, tail: Tail) -> None:
        self._file = file
        self.tail = tail
        self.next_seq = tail.next_seq

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open for appending and mend a torn tail, the evidence kept. Only under the session's lock. StorageError."""
        file = LineFile.open(folder / NAME)
        try:
            if file.torn_at is not None:
                _keep_evidence(folder, file.torn_at)
                file.end_torn_line()
            return cls(file, read_tail(folder))
        except BaseException:
            file.close()
            raise

    def append(self, now: Moment, event: Event, loop: Loop | None) -> Record:
        """Record a step, durably. StorageError: it is not recorded and nothing may be done on it."""
        record = Record(self.next_seq, now.wall, now, event, loop)
        self._file.append(encode_record(record), durable=True)
        self.next_seq += 1
        return record

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _decoded(line: bytes | None) -> Record | UnknownVersion | Damaged:
    return _TOO_LONG if line is None else decode_record(line)


def _keep_evidence(folder: Path, start: int) -> None:
    """Copy an unfinished last line away, unless it is a whole record that only lacks its line end."""
    fd = open_to_read(folder / NAME)
    assert fd is not None
    with os.fdopen(fd, "rb") as file:
        file.seek(start)
        torn = file.read(MAX_LINE)
    if not isinstance(decode_record(torn), Damaged):
        return
    for number in range(1, MAX_TORN + 1):
        evidence = folder / f"{NAME}.torn-{number}"
        if not evidence.exists():
            write_atomic(evidence, torn)
            return
