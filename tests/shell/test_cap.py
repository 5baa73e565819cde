"""More sessions than are wanted: who is asked, in which order, and when it is enough."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from loopsup.errors import RefusedError
from loopsup.shell.cap import enforce, live
from loopsup.wire.control import Response
from tests.cli.support import Answer, Sessions, a_loop

STAYS = Response(error=RefusedError("the session stays: its loop is active, and nobody else fires it"))
GOES = Response()


def idle_since(folder: Path, at: int) -> None:
    (folder / "events.jsonl").write_bytes(b"")
    os.utime(folder / "events.jsonl", (at, at))


@pytest.mark.parametrize(
    ("cap", "asked"),
    [
        (4, []),
        (3, ["loop", "older"]),
        (2, ["loop", "older", "old"]),
        (1, ["loop", "older", "old", "own"]),
        (0, ["loop", "older", "old", "own"]),
    ],
)
def test_case_183_the_one_idle_longest_goes_first_and_who_refuses_stays(
    tmp_path: Path, cap: int, asked: list[str]
) -> None:
    """H-16: one with a loop, idle longest of all, and two without; the asking one is the newest."""
    sessions = Sessions(tmp_path)
    order: list[str] = []

    def answers(name: str, answer: Response) -> Answer:
        return lambda _: order.append(name) or answer

    def own() -> bool:
        order.append("own")
        return True

    with contextlib.ExitStack() as stack:
        for name, at, answer in (("old", 300, GOES), ("loop", 100, STAYS), ("own", 400, GOES), ("older", 200, GOES)):
            loop = a_loop() if name == "loop" else None
            stack.enter_context(sessions.live(name, loop, reap=answers(name, answer)))
            idle_since(sessions.home.sessions / name, at)
        sessions.make("closed")
        assert [session.name for session in live(sessions.home)] == ["loop", "older", "old", "own"]
        asyncio.run(enforce(sessions.home, cap, "own", own))
    assert order == asked
