"""Which rule files of a project a person has looked at and trusted: `<state home>/trusted-rules.json`.

Rules steer an agent, so those that came with a project act only after `loopsup rules trust` there. What is trusted
is each file as it was then: a file that was changed since, or is new, does not act until it is trusted again, and
is named. Files in a person's own configuration need no trust.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from loopsup.errors import StorageError
from loopsup.store.files import read_private, write_atomic
from loopsup.store.home import Home
from loopsup.store.lock import creation_lock

NAME = "trusted-rules.json"
VERSION = 1
MAX_BYTES = 4 * 1024 * 1024  # thousands of projects; more is damage


def fingerprint(content: bytes) -> str:
    """What is remembered of a file."""
    return hashlib.sha256(content).hexdigest()


def trusted(home: Home) -> dict[str, dict[str, str]]:
    """Project directory -> file -> fingerprint. StorageError where the file cannot be read or is damaged."""
    try:
        content = read_private(home.root / NAME, MAX_BYTES)
    except FileNotFoundError:
        return {}
    try:
        obj = json.loads(content)
        if obj["v"] != VERSION:
            raise ValueError("another version")
        folders = obj["folders"].items()
        return {str(folder): {str(name): str(mark) for name, mark in files.items()} for folder, files in folders}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        shown = os.fsdecode(home.root / NAME)
        raise StorageError(f"{shown} is damaged; remove it, then trust the rules again") from error


def trust(home: Home, project: str, files: Mapping[str, str]) -> None:
    """These files of the project are trusted from now on, and no others of it. StorageError."""
    if not files and project not in trusted(home):
        return
    home.ensure()
    with creation_lock(home.sessions):  # of two at once neither is lost
        folders = trusted(home)
        folders.pop(project, None)
        if files:
            folders[project] = dict(files)
        obj = {"v": VERSION, "folders": folders}
        write_atomic(home.root / NAME, json.dumps(obj, ensure_ascii=True, indent=1).encode("ascii") + b"\n")
