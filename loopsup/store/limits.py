"""Usage limits that several sessions meet: one of them asks the provider again, the others wait for what it finds.

One small file for each agent and provider in the state directory, `{"until": wall ms, "by": session id}`; empty: the
provider has answered since. Whoever reads or writes it holds its `flock` for that moment. Rules: a note whose time
has passed binds nobody, so a session that died is replaced by whoever looks next; where the file cannot be used,
everybody waits and asks for themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from loopsup.errors import StorageError
from loopsup.store.files import open_private
from loopsup.store.home import private_dir

MAX_BYTES = 4096  # such a note is a hundred bytes
MAX_NAME = 100


class SharedLimits:
    """The limits, as the session `me` sees and keeps them. Raises nothing."""

    def __init__(self, folder: Path, me: str) -> None:
        self._folder = folder
        self._me = me

    def take(self, key: str, until: int, now: int, latest: int | None = None) -> int | None:
        """Look after the limit until `until`; or, where somebody else does already, until when.

        `latest`: nobody is followed who asks later than that, because the provider told us so.
        """
        with self._opened(key) as file:
            held = self._other(file, now)
            if held is not None and latest is not None and held > latest:
                held = None
            if file is not None and held is None:
                _write(file, {"until": until, "by": self._me})
            return held

    def is_open(self, key: str) -> bool:
        """Whoever looked after it had an answer."""
        with self._opened(key) as file:
            return file is None or _read(file) is None

    def clear(self, key: str) -> None:
        """The provider has answered us."""
        with self._opened(key) as file:
            found = None if file is None else _read(file)
            if file is not None and found is not None and found[1] == self._me:
                file.truncate(0)

    def _other(self, file: BinaryIO | None, now: int) -> int | None:
        found = None if file is None else _read(file)
        return found[0] if found is not None and found[1] != self._me and found[0] > now else None

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO | None]:
        """The file of `key`, ours for the moment; None where it cannot be."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:MAX_NAME] + ".json"
        with contextlib.ExitStack() as stack:
            file = None
            with contextlib.suppress(OSError, StorageError):
                private_dir(self._folder)
                fd = open_private(self._folder / name, os.O_RDWR | os.O_CREAT)
                file = stack.enter_context(os.fdopen(fd, "r+b"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    file = None
            yield file


def _read(file: BinaryIO) -> tuple[int, str] | None:
    file.seek(0)
    try:
        note = json.loads(file.read(MAX_BYTES))
        until, by = note["until"], note["by"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return (until, by) if type(until) is int and isinstance(by, str) else None


def _write(file: BinaryIO, note: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        file.seek(0)
        file.truncate()
        file.write(json.dumps(note).encode("ascii"))
        file.flush()
