"""Time that stands still, jumps and is long, under a real supervisor (T2; cases 87, 89, 90, 93)."""

from __future__ import annotations

import signal

import pytest

from loopsup.clock import mono_ms
from loopsup.core.events import IterationSettled
from loopsup.store.journal import read_all
from loopsup.wire.journal import Record
from loopsup.wire.times import parse_instant
from tests.support.demo_words import ON, decide
from tests.support.steps import DAY, HOUR, Steps
from tests.support.world import World

pytestmark = pytest.mark.slow


def records(world: World) -> list[Record]:
    return [record for record in read_all(world.folder().resolve()) if isinstance(record, Record)]


def flights(world: World) -> list[tuple[int, int]]:
    """(due, handed over at) of each iteration, wall ms."""
    found: dict[int, tuple[int, int]] = {}
    for record in records(world):
        flight = None if record.loop is None else record.loop.flight
        if flight is not None:
            found.setdefault(flight.iteration, (flight.due_at, record.now.wall))
    return [found[number] for number in sorted(found)]


def settled(world: World) -> list[int]:
    return [record.now.wall for record in records(world) if isinstance(record.event, IterationSettled)]


def breathe(world: World, text: str = "are you there") -> None:
    """A message goes through the whole supervisor: whatever was due at this time has been seen to."""
    world.ok("say", "--wait", text)


def stopped_in_waiting(world: World, pid: int) -> bool:
    """Stop it; if that was not between two iterations, let it go on."""
    world.halt(pid)
    if world.recorded()["phase"]["type"] == "waiting":
        return True
    world.kill(pid, signal.SIGCONT)
    return False


def test_a_supervisor_that_was_stopped_wakes_once_and_not_in_a_burst(world: World) -> None:
    world.env["LOOPSUP_CLOCK_RATE"] = "60"
    world.start([decide(ON)], "--every", "1m", "--for", "30d", "--max-iterations", "10000")
    world.until_event("loop.transition", 2, to="waiting")
    pid = world.supervisor()
    world.wait_for(lambda: stopped_in_waiting(world, pid), "a stop between two iterations")
    count = len(flights(world))
    stopped_at = mono_ms()
    world.wait_for(lambda: mono_ms() > stopped_at + 4000, "four seconds, which are four minutes")
    assert len(flights(world)) == count
    world.kill(pid, signal.SIGCONT)
    world.wait_for(lambda: len(flights(world)) > count + 2, "three more wakes")
    found = flights(world)
    late = [at - due for due, at in found]
    assert max(late) >= 120_000  # one was due while nobody was there
    for (due, _), end in zip(found[1:], settled(world), strict=False):
        assert due - end == 60_000  # each from the end of the one before: nothing is caught up


def test_the_wall_clock_is_set_forward_and_back(world: World) -> None:
    steps = Steps(world)
    started = world.start([decide(ON)], "--every", "1h", "--for", "24h")["loop"]
    began = parse_instant(started["startedAt"])
    due = parse_instant(world.until(state="waiting")["loop"]["nextDueAt"])
    steps.set(8 * HOUR)
    loop = world.until(state="waiting", iterationCount=2)["loop"]
    assert flights(world)[1][0] == due  # the one wake that was due, and no other
    assert flights(world)[1][1] >= began + 8 * HOUR
    assert parse_instant(loop["nextDueAt"]) >= began + 9 * HOUR
    steps.set(7 * HOUR)
    breathe(world)
    assert world.peek()["loop"]["iterationCount"] == 2  # what was fired is not fired again
    steps.set(30 * HOUR)
    loop = world.until(state="paused", pauseReason="duration_limit")["loop"]
    attention = loop["lastAttention"]
    assert parse_instant(attention["endedAt"]) == began + DAY  # when it was true
    assert parse_instant(attention["observedAt"]) >= began + 30 * HOUR  # when it was seen
    steps.set(0)
    assert world.run("resume").code == 4
    assert world.peek()["loop"]["state"] == "paused"
    world.ok("update", "--for", "48h")
    world.ok("resume")
    assert len(world.events("loop.attention")) == 1
    assert world.peek()["loop"]["state"] in ("waiting", "queued", "running")


def test_forty_days_are_forty_days(world: World) -> None:
    steps = Steps(world)
    world.start([decide(ON)], "--every", "40d", "--max-delay", "60d", "--for", "60d")
    due = parse_instant(world.until(state="waiting")["loop"]["nextDueAt"])
    steps.set(39 * DAY)
    breathe(world)
    assert world.peek()["loop"]["state"] == "waiting"
    steps.set(40 * DAY)
    world.until(state="waiting", iterationCount=2)
    assert [early for early, _ in flights(world)][1] == due
    assert all(at >= early for early, at in flights(world))


def test_a_deadline_that_passed_while_nobody_was_there(world: World) -> None:
    """Killed before it, opened after it; the clock goes back afterwards."""
    steps = Steps(world)
    began = parse_instant(world.start([decide(ON)], "--every", "10h", "--for", "24h")["loop"]["startedAt"])
    world.until(state="waiting")
    world.kill(world.supervisor())
    steps.set(30 * HOUR)
    assert world.run("resume").code == 4
    loop = world.loop()
    assert (loop["state"], loop["pauseReason"]) == ("paused", "duration_limit")
    attention = loop["lastAttention"]
    assert parse_instant(attention["endedAt"]) == began + DAY
    assert parse_instant(attention["observedAt"]) >= began + 30 * HOUR
    steps.set(0)
    assert world.run("resume").code == 4
    assert len(flights(world)) == 1
