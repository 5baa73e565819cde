"""What `loopsup tick` reads of a thousand sessions, and the mark it leaves.

Looking is cheap: of each journal only the last line is read, and parsed only where it may concern a tick. It is
a hint and errs on one side: whatever cannot be judged so is said to be due, and then read properly.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopsup.store.files import open_private, storage_error
from loopsup.store.home import Home

STAMP = "last-tick"
TAIL = 32 * 1024  # bytes: an ordinary journal line fits several times; a longer one is read properly
JOURNAL = "journal.jsonl"
_TICK = b'"driver":"tick"'  # as `wire.journal` writes it; inside of a text it would stand with backslashes
_ENDED = frozenset({"completed", "failed", "stopped"})


def stamp(home: Home, now: int) -> None:
    """A tick was here at `now` (wall ms). StorageError."""
    path = home.root / STAMP
    try:
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT))
        os.utime(path, ns=(now * 1_000_000, now * 1_000_000))
    except OSError as error:
        raise storage_error("cannot write", path, error) from error


def last(home: Home) -> int | None:
    """When the last tick was here (wall ms); None: never."""
    with contextlib.suppress(OSError):
        return (home.root / STAMP).lstat().st_mtime_ns // 1_000_000
    return None


def perhaps_due(home: Home, now: int) -> Iterator[str]:
    """The names of the sessions a tick at `now` (wall ms) has to look at."""
    if not home.check():
        return
    for name in sorted(os.listdir(home.sessions)):  # noqa: PTH208 (names are wanted, not paths)
        if not name.startswith(".") and _due(home.sessions / name / JOURNAL, now):
            yield name


def _due(journal: Path, now: int) -> bool:
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False  # no loop yet
    except OSError:
        return True
    try:
        size = os.fstat(fd).st_size
        block = os.pread(fd, TAIL, max(0, size - TAIL))
    except OSError:
        return True
    finally:
        os.close(fd)
    line, _, rest = block.rpartition(b"\n")
    start = line.rfind(b"\n") + 1
    if rest or (start == 0 and size > TAIL):
        return size > 0
    return _line_due(line[start:], now)


def _line_due(line: bytes, now: int) -> bool:
    """Whether the loop of this record waits for a tick, or for being put in order by one."""
    if not line:
        return False
    if not (line.startswith(b'{"v":1,') and line.endswith(b"}")):
        return True
    if _TICK not in line:
        return False
    try:
        return _loop_due(json.loads(line)["loop"], now)
    except (ValueError, KeyError, TypeError):
        return True


def _loop_due(loop: Any, now: int) -> bool:
    if loop is None or loop["driver"] != "tick":
        return False
    phase, deadline = loop["phase"], loop["started_at"] + loop["policy"]["for_ms"]
    expired = now >= deadline and deadline not in loop["expired_deadlines"]
    match phase["type"]:
        case "waiting":
            return bool(expired or now >= phase["due"]["wall"])
        case "paused":
            return bool(expired or phase["flight"] is not None)
        case kind:
            return kind not in _ENDED  # queued or running: by somebody who is at it, or who died
