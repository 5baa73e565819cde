"""A supervisor that was stopped over its wake (T2): one line for it, and what --misfire says."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from loopsup.core.misfire import LATE_MS
from loopsup.wire.times import parse_instant
from tests.support.demo_words import ON, decide
from tests.support.world import COUNT, INSTANT, Like, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # each wait has its own bound; there are several


def stopped_while_waiting(world: World, pid: int) -> int:
    """Stop the supervisor in a wait; the wall instant of the wake it cannot fire."""

    def stopped() -> int | None:
        if world.peek()["loop"]["state"] != "waiting":
            return None
        world.halt(pid)
        phase = world.recorded()["phase"]
        if phase["type"] == "waiting":
            return int(phase["due"]["wall"])
        world.kill(pid, signal.SIGCONT)
        return None

    return int(world.wait_for(stopped, "a wait"))


def about(events: list[Any], due: int) -> Any:
    """The event of this wake: a machine that stood still may have missed others."""
    return next((event for event in events if parse_instant(event["data"]["dueAt"]) == due), None)


@pytest.mark.parametrize(("misfire", "done"), [("once", "woken"), ("skip", "skipped")])
def test_a_wake_nobody_could_fire(world: World, misfire: str, done: str) -> None:
    started = world.start([decide(ON)], "--every", "2s", "--min-delay", "1s", "--misfire", misfire)
    assert started["loop"]["misfire"] == misfire
    pid = world.supervisor()
    due = stopped_while_waiting(world, pid)
    before = len(world.said("loop"))
    while time.time_ns() // 1_000_000 <= due + LATE_MS + 500:
        time.sleep(0.1)  # it is this long that nobody fires
    world.kill(pid, signal.SIGCONT)
    late = Like(lambda it: it > LATE_MS, "late")
    told = {"dueAt": INSTANT, "missedByMs": late, "count": Like(lambda it: it >= 3, "some"), "why": "held_up"}
    event = world.wait_for(lambda: about(world.events("loop.misfire"), due), "the misfire")
    assert event["data"] == {**told, "done": done}
    world.wait_for(lambda: len(world.said("loop")) > before, "the next iteration")
    rows = [row for row in world.run("history", "--json").lines if row["type"] == "missed"]
    (row,) = [row for row in rows if parse_instant(row["dueAt"]) == due]
    assert row == {"type": "missed", "at": INSTANT, **told, "done": done}
    (sent, *_) = [
        e for e in world.events("user.message") if e["data"]["origin"] == "loop" and parse_instant(e["at"]) > due
    ]
    assert sent["seq"] > event["seq"]
    assert world.peek()["loop"]["lastMissed"]["count"] == COUNT
    assert "was missed by" in world.ok("status").out
