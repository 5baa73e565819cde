"""session.toml: comes back as it was; damage and text that cannot be kept are told."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.core.overrides import Overrides
from loopsup.errors import StorageError, UsageError
from loopsup.store.identity import NAME, Identity, load_identity, save_identity

IDENTITY = Identity(
    name="work",
    id="s1",
    agent="demo",
    cwd='/w/"q"\\ ü\n',
    socket="/run/x.sock",
    created=1_791_590_400_000,
    command="/opt/demo",
    args=("--a", "", "\x1b[0m"),
    agent_session_id="a1",
    agent_file="/s/a1.jsonl",
    allow_all=True,
    continuity=Overrides(False, "unlimited", 250),
)
PLAIN = Identity("w", "s", "demo", "/w", "/run/x.sock", 0)


@pytest.mark.parametrize("identity", [IDENTITY, PLAIN, replace(PLAIN, continuity=Overrides(max_resumes=0))])
def test_it_comes_back_and_is_private(folder: Path, identity: Identity) -> None:
    save_identity(folder, IDENTITY)
    save_identity(folder, identity)
    assert load_identity(folder) == identity
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == [NAME]


def test_later_keys_are_ignored(folder: Path) -> None:
    save_identity(folder, PLAIN)
    path = folder / NAME
    path.write_text(path.read_text() + "later = 1\n")
    assert load_identity(folder) == PLAIN


@pytest.mark.parametrize(
    ("find", "put", "error"),
    [
        ('name = "w"', "name = 3", "name is missing or of the wrong type"),
        ('agent = "demo"', "", "agent is missing"),
        ("args = []", "args = [1]", "args has something that is not text"),
        ("allow_all = false", "allow_all = 0", "allow_all is missing or of the wrong type"),
        ("1970-01-01T", "1970-01-01 ", "is not an instant"),
        ("name =", "name", "damaged"),
        ("allow_all", "continuity = 1\nallow_all", "continuity is of the wrong type"),
        (
            "allow_all",
            'continuity = {max_resumes = "many"}\nallow_all',
            "max_resumes is missing or of the wrong type",
        ),
    ],
)
def test_damage_is_named(folder: Path, find: str, put: str, error: str) -> None:
    save_identity(folder, PLAIN)
    path = folder / NAME
    path.write_text(path.read_text().replace(find, put))
    with pytest.raises(StorageError, match=error):
        load_identity(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(StorageError, match=r"session\.toml is missing, so this is no session of loopsup"):
        load_identity(folder)


def test_text_that_is_not_utf8_changes_nothing(folder: Path) -> None:
    save_identity(folder, PLAIN)
    with pytest.raises(UsageError, match="not valid UTF-8"):
        save_identity(folder, replace(PLAIN, cwd="/w/\udcff"))
    assert load_identity(folder) == PLAIN


def test_a_failed_write_leaves_the_old_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_identity(folder, PLAIN)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"the disk is full \(No space left on device\); free some space"):
        save_identity(folder, IDENTITY)
    assert (load_identity(folder), os.listdir(folder)) == (PLAIN, [NAME])
