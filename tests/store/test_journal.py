"""The journal on disk: cut anywhere, damaged anywhere, full disk, another version, any length."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.events import Event, Pause, Resume, Start
from loopsup.core.model import Fixed, Loop, Moment, Paused, PauseReason, Policy, Waiting
from loopsup.errors import StorageError
from loopsup.store import files
from loopsup.store.journal import NAME, DamagedLine, JournalAppender, Tail, find_record, read_all, read_tail
from loopsup.wire.journal import Record, UnknownVersion, encode_record
from tests.store.conftest import Spawn

T0 = 1_791_590_400_000
POLICY = Policy(Fixed(600_000))
LOOP = Loop("l1", "sieh\u2028nach", POLICY, T0, Waiting(Moment(T0 + 600_000, 1000)))
PAUSED = replace(LOOP, phase=Paused(PauseReason.USER, T0 + 600_000))
STEPS: list[tuple[Event, Loop]] = [
    (Start("l1", LOOP.objective, POLICY, 0, True), LOOP),
    (Pause(), PAUSED),
    (Resume(True), LOOP),
]
RECORDS = [Record(i, T0 + i, Moment(T0 + i, i), event, loop) for i, (event, loop) in enumerate(STEPS, start=1)]
LINES = [encode_record(record) for record in RECORDS]


def write(folder: Path, content: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(content)
    return path


def append_one(folder: Path) -> Record:
    with JournalAppender.open(folder) as journal:
        return journal.append(Moment(T0 + 99, 99), Pause(), PAUSED)


def test_what_is_appended_is_read(folder: Path) -> None:
    assert read_tail(folder) == Tail(None, 1)
    with JournalAppender.open(folder) as journal:
        made = [journal.append(record.now, record.event, record.loop) for record in RECORDS]
    assert made == RECORDS
    assert list(read_all(folder)) == RECORDS
    assert read_tail(folder) == Tail(RECORDS[-1], 4)
    assert (folder / NAME).read_bytes() == b"".join(LINES)
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600


def test_no_loop_is_a_state_too(folder: Path) -> None:
    with JournalAppender.open(folder) as journal:
        journal.append(Moment(T0, 0), Pause(), None)
    assert read_tail(folder).loop is None


@pytest.mark.slow
def test_cut_at_every_byte_the_last_whole_record_is_the_state(folder: Path) -> None:
    """Case 192. A record that lacks only its line end is whole."""
    whole = b"".join(LINES)
    for cut in range(len(whole) + 1):
        for old in folder.iterdir():
            old.unlink()
        path = write(folder, whole[:cut])
        kept = [record for i, record in enumerate(RECORDS) if cut >= len(b"".join(LINES[: i + 1])) - 1]
        torn = whole[:cut].rpartition(b"\n")[2]
        broken = bool(torn) and torn + b"\n" not in LINES
        last = kept[-1] if kept else None

        before = read_tail(folder)
        made = append_one(folder)

        assert before.last == last
        assert len(before.damaged) == broken
        assert made.seq == len(kept) + 1 + broken
        assert [found for found in read_all(folder) if isinstance(found, Record)] == [*kept, made]
        assert read_tail(folder) == Tail(made, made.seq + 1)
        assert path.read_bytes().startswith(whole[:cut])
        evidence = folder / f"{NAME}.torn-1"
        assert (evidence.read_bytes() if evidence.exists() else None) == (torn if broken else None)


def test_half_a_record_at_the_end_is_told_and_both_neighbours_parse(folder: Path) -> None:
    """Case 101."""
    write(folder, LINES[0] + b'{"type":"custom","da')
    tail = read_tail(folder)
    assert tail.last == RECORDS[0]
    assert tail.problem() == (
        f"1 line was skipped at the end of the journal (at byte {len(LINES[0])}: it is not JSON "
        "(Unterminated string starting at))"
    )
    made = append_one(folder)
    found = list(read_all(folder))
    assert (found[0], found[2]) == (RECORDS[0], made)
    assert isinstance(found[1], DamagedLine)


def test_evidence_of_every_crash_is_kept(folder: Path) -> None:
    path = write(folder, LINES[0])
    for number, torn in enumerate([b'{"a', b"\0\0\0\0", b"\xff"], start=1):
        path.write_bytes(path.read_bytes() + torn)
        append_one(folder)
        assert (folder / f"{NAME}.torn-{number}").read_bytes() == torn
    assert read_tail(folder).damaged == ()


WITH_A_STRANGE_KEY = json.dumps({**json.loads(LINES[1]), "x": "a\u2028b\x85c"}, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize(
    ("middle", "damaged"),
    [
        (b'{"v":1,"seq":2,"at"\n', 1),
        (b"\0" * 512 + b"\n", 1),
        (b"\n", 1),
        (b"\r\n\r\n", 2),
        (b"\xff\xfe\xfd\n", 1),
        (b"[" * 50_000 + b"\n", 1),
        (LINES[1].replace(b'"v":1', b'"v":1.5'), 1),
        (LINES[1].replace(b'"seq":2', b'"seq":NaN'), 1),
        (LINES[1].replace(b'"started_at"', b'"begun_at"'), 1),
        (LINES[1].replace(b'"iteration_count":0', b'"iteration_count":"0"'), 1),
        (LINES[1].replace(b'"started_at":%d' % T0, b'"started_at":%d' % (T0 + 400 * 86_400_000)), 1),
        (LINES[1].replace(b"\n", b"\r\n"), 0),
        (WITH_A_STRANGE_KEY, 0),
        (b"x" * 200_000 + b"\n", 1),
    ],
)
def test_damage_is_skipped_wherever_it_is(folder: Path, middle: bytes, damaged: int) -> None:
    """Cases 102 and 105: in the middle all other lines are read, at the end the record before it is the state."""
    write(folder, LINES[0] + middle + LINES[2])
    found = list(read_all(folder))
    assert (found[0], found[-1]) == (RECORDS[0], RECORDS[2])
    assert sum(isinstance(line, DamagedLine) for line in found) == damaged
    assert read_tail(folder) == Tail(RECORDS[2], 4)

    write(folder, LINES[0] + middle)
    tail = read_tail(folder)
    assert tail.last == (RECORDS[0] if damaged else RECORDS[1])
    assert [line.offset for line in tail.damaged][-1:] == ([len(LINES[0])] if damaged else [])


def test_a_journal_of_nothing_but_damage_has_no_state(folder: Path) -> None:
    write(folder, b"x\ny\nz")
    tail = read_tail(folder)
    assert (tail.last, tail.next_seq, [line.offset for line in tail.damaged]) == (None, 4, [4, 2, 0])
    assert tail.problem() == (
        "3 lines were skipped at the end of the journal (at byte 4: it is not JSON (Expecting value))"
    )


def test_a_line_beyond_the_bound_is_skipped_both_ways(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 2000)
    monkeypatch.setattr(files, "BLOCK", 256)
    write(folder, LINES[0] + b"y" * 5000 + b"\n" + LINES[1] + b"z" * 9000)
    assert [type(line) for line in read_all(folder)] == [Record, DamagedLine, Record, DamagedLine]
    tail = read_tail(folder)
    assert (tail.last, len(tail.damaged)) == (RECORDS[1], 1)
    assert append_one(folder).seq == 4


# ---- another version ----------------------------------------------------------------------------------


def test_another_version_stays_byte_for_byte_and_is_the_state(folder: Path) -> None:
    """L-116, D-48."""
    foreign = LINES[1].replace(b'"v":1', b'"v":7').replace(b'"seq":2', b'"seq":20') + b""
    path = write(folder, LINES[0] + foreign)
    tail = read_tail(folder)
    assert tail == Tail(
        UnknownVersion(7, foreign[:-1], 20, replace(PAUSED, phase=Paused(PauseReason.UNKNOWN_VERSION))), 21
    )
    made = append_one(folder)
    assert path.read_bytes() == LINES[0] + foreign + encode_record(made)
    assert [type(line) for line in read_all(folder)] == [Record, UnknownVersion, Record]


def test_another_version_without_a_number_takes_one(folder: Path) -> None:
    write(folder, LINES[0] + LINES[1] + b'{"v":"next","loop":null}\n')
    assert read_tail(folder).next_seq == 4


# ---- cost, search ---------------------------------------------------------------------------------------


def test_opening_costs_the_same_whatever_the_length(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = os.pread

    def counting(fd: int, count: int, offset: int) -> bytes:
        nonlocal read
        data = real(fd, count, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    costs = []
    for times in (200, 20_000):
        write(folder, LINES[0] * times)
        read = 0
        with JournalAppender.open(folder):
            costs.append(read)
    assert costs[0] == costs[1] <= 3 * files.BLOCK


def test_a_marked_record_is_found_by_loop_and_number(folder: Path) -> None:
    other = replace(RECORDS[1], loop=replace(PAUSED, id="l2"))
    write(folder, b"".join(LINES) + encode_record(other) + b"junk\n")
    assert find_record(folder, "l1", 2) == RECORDS[1]
    assert find_record(folder, "l2", 2) == other
    assert find_record(folder, "l1", 9) is None
    assert find_record(folder / "none", "l1", 1) is None


# ---- a disk that refuses ----------------------------------------------------------------------------------

FULL_DISK = """
import json, resource, signal, sys
from pathlib import Path
from loopsup.core.events import Pause
from loopsup.core.model import Moment
from loopsup.errors import StorageError
from loopsup.store.journal import JournalAppender, NAME, read_tail
folder = Path(sys.argv[1])
journal = JournalAppender.open(folder)
before = (folder / NAME).read_bytes()
out = []
for room in (0, 1, 40, 10_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, resource.RLIM_INFINITY))
    try:
        out.append(journal.append(Moment(5, 5), Pause(), None).seq)
    except StorageError as error:
        out.append([error.message, (folder / NAME).read_bytes() == before, journal.next_seq])
out.append(read_tail(folder).last.seq)
print(json.dumps(out))
"""


@pytest.mark.slow
def test_a_full_disk_changes_nothing_and_the_next_append_is_clean(folder: Path, spawn: Spawn) -> None:
    """Case 103, with the kernel really refusing: at once, after 1 byte and in mid-line."""
    write(folder, LINES[0])
    out = json.loads(spawn(FULL_DISK, str(folder)).communicate(timeout=60)[0])
    assert out[3:] == [2, 2]
    for message, unchanged, next_seq in out[:3]:
        assert message.startswith(f"cannot write {folder / NAME}: the disk is full (")
        assert (unchanged, next_seq) == (True, 2)


def test_a_write_that_cannot_even_be_taken_back_is_taken_back_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, LINES[0])
    real_write = os.write

    def refused(_fd: int, _size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with JournalAppender.open(folder) as journal:
        with monkeypatch.context() as broken:
            broken.setattr(os, "write", lambda fd, line: real_write(fd, line[:30]))
            broken.setattr(os, "ftruncate", refused)
            for _ in range(2):
                with pytest.raises(StorageError, match="cannot write"):
                    journal.append(Moment(5, 5), Pause(), None)
        assert len(path.read_bytes()) == len(LINES[0]) + 30
        made = journal.append(Moment(5, 5), Pause(), None)
    assert path.read_bytes() == LINES[0] + encode_record(made)


def test_a_record_that_is_not_on_the_medium_is_not_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder, LINES[0])

    def refused(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with JournalAppender.open(folder) as journal:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", refused)
            with pytest.raises(StorageError, match="Input/output error"):
                journal.append(Moment(5, 5), Pause(), None)
        assert (path.read_bytes(), journal.next_seq) == (LINES[0], 2)


def test_a_symlink_a_directory_and_a_pipe_are_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / NAME
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep")
    path.symlink_to(victim)
    with pytest.raises(StorageError, match="it is a symbolic link, which is never followed here"):
        JournalAppender.open(folder)
    assert victim.read_bytes() == b"keep"
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        JournalAppender.open(folder)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="is not a regular file"):
        read_tail(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_foreign_file_is_refused(folder: Path) -> None:
    os.chown(write(folder, LINES[0]), 65534, 65534)
    with pytest.raises(StorageError, match="belongs to another user"):
        read_tail(folder)
