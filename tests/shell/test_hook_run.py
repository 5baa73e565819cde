"""The hook of a command without a supervisor: detached, and its outcome visible in the session."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from loopsup.shell.hook import HookResult, spawn_detached
from loopsup.shell.hook_run import LOG, record
from loopsup.store import eventlog
from loopsup.store.lock import SessionLock

RESULT = HookResult("/h", exit=3, duration_ms=5, output="no\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "session"
    made.mkdir(mode=0o700)
    return made


def stored(folder: Path) -> list[dict[str, object]]:
    return [{"type": event["type"], "data": event["data"]} for event in eventlog.read(folder)]


def test_the_outcome_becomes_an_event(folder: Path) -> None:
    record(folder, RESULT, 0)
    record(folder, RESULT, 0)
    assert stored(folder) == [{"type": "loop.hook", "data": RESULT.data()}] * 2
    assert not (folder / LOG).exists()


def test_beside_a_living_owner_it_goes_into_the_log(folder: Path) -> None:
    with SessionLock.acquire(folder):
        record(folder, RESULT, 0)
    assert stored(folder) == []
    assert (folder / LOG).read_text() == (
        "1970-01-01T00:00:00.000Z the attention hook '/h' ended with exit status 3 after 5 ms\n"
    )
    assert (folder / LOG).stat().st_mode & 0o777 == 0o600


def test_a_vanished_session_is_no_accident(folder: Path) -> None:
    folder.rmdir()
    record(folder, RESULT, 0)
    assert not folder.exists()


@pytest.mark.slow
def test_spawned_detached_it_outlives_its_caller_and_is_told(folder: Path, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    hook.write_text(f"#!/bin/sh\ncat > {tmp_path}/got\nps -o sid= -p $$ > {tmp_path}/sid\n{wait}\nexit 4\n")
    hook.chmod(0o755)
    event = {"version": 1, "summary": "\ud800 \u2028 " + "x" * 1_000_000}
    spawn_detached(folder, str(hook), event)
    assert stored(folder) == []  # it waits for nothing
    (tmp_path / "go").touch()
    give_up = time.monotonic() + 60
    while not stored(folder) and time.monotonic() < give_up:
        time.sleep(0.05)
    ((kind, data),) = ((row["type"], row["data"]) for row in stored(folder))
    assert isinstance(data, dict)
    assert (kind, data["path"], data["exit"]) == ("loop.hook", str(hook), 4)
    assert json.loads((tmp_path / "got").read_text()) == event
    assert int((tmp_path / "sid").read_text()) != os.getsid(0)
