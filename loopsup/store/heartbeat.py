"""`heartbeat.json`: the heartbeat of a session, beside its journal. Replaced whole, by the owner of the lock only."""

from __future__ import annotations

import os
from pathlib import Path

from loopsup.core.heartbeat import Heartbeat
from loopsup.errors import StorageError
from loopsup.store.files import read_private, write_atomic
from loopsup.wire.heartbeat import decode_file, encode_file

NAME = "heartbeat.json"
MAX_BYTES = 64 * 1024  # a few numbers


def load(folder: Path) -> Heartbeat | None:
    """The heartbeat; None where there never was one. StorageError says what is wrong with the file."""
    path = folder / NAME
    try:
        return decode_file(read_private(path, MAX_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{os.fsdecode(path)} cannot be read: {error}; a new heartbeat replaces it") from error


def save(folder: Path, heartbeat: Heartbeat | None) -> None:
    """StorageError: it stands as before."""
    if heartbeat is not None or (folder / NAME).exists():
        write_atomic(folder / NAME, encode_file(heartbeat))
