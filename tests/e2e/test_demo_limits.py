"""Iterations and time run out: once, in order, and an update goes on from there."""

from __future__ import annotations

import pytest

from tests.support.demo_words import DONE, ON, decide
from tests.support.steps import HOUR, Steps
from tests.support.world import QUICK, World

pytestmark = pytest.mark.slow


def kinds(world: World) -> list[str]:
    return [record["event"]["type"] for record in world.journal()]


def test_the_iteration_limit_and_more_of_them(world: World) -> None:
    world.start([decide(ON), decide(ON), decide(DONE)], *QUICK, "--max-iterations", "2")
    assert world.run("wait").code == 13
    found = world.loop()
    assert (found["iterationCount"], found["lastAttention"]["status"]) == (2, "iteration_limit")
    assert found["lastAttention"]["evidence"]["source"] == "extension"
    refused = world.json("resume", code=4)
    assert "--max-iterations" in refused["error"]["message"]
    assert len(world.events("loop.attention")) == 1
    world.ok("update", "--max-iterations", "3")
    assert world.loop()["pauseReason"] == "iteration_limit"
    world.ok("resume")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 3


def test_the_deadline_while_waiting(world: World) -> None:
    steps = Steps(world)
    world.start([decide(ON), decide(DONE)], "--for", "1h")
    world.until(state="waiting")
    assert world.peek()["loop"]["nextDueAt"] is None  # the wake would lie behind the deadline
    steps.set(2 * HOUR)
    assert world.run("wait").code == 12
    found = world.loop()
    event = found["lastAttention"]
    assert (event["calendarElapsedMs"], event["deadlineRemainingMs"]) == (HOUR, 0)
    assert event["endedAt"] == found["deadlineAt"] <= event["observedAt"]
    assert found["deadlineRemainingMs"] == 0
    refused = world.json("resume", code=4)
    assert "--for" in refused["error"]["message"]
    world.ok("update", "--for", "24h", *QUICK)
    world.ok("resume")
    assert world.run("wait").code == 0
    assert [e["data"]["status"] for e in world.events("loop.attention")] == ["duration_limit", "completed"]


def test_the_deadline_while_running_lets_the_iteration_finish(world: World) -> None:
    steps = Steps(world)
    world.start([decide(DONE, wait_for=world.gate("go"))], "--for", "1h")
    world.until_event("assistant.turn_start")
    steps.set(2 * HOUR)
    assert world.run("wait").code == 12
    assert world.pairs()[0] == 1
    assert world.events("abort") == []
    world.open("go")
    world.until(state="completed")
    assert [e["data"]["status"] for e in world.events("loop.attention")] == ["duration_limit", "completed"]


def test_the_deadline_while_paused(world: World) -> None:
    steps = Steps(world)
    world.start([decide(ON)], "--for", "1h")
    world.until(state="waiting")
    world.ask("pause")
    steps.set(2 * HOUR)
    world.until(state="paused", pauseReason="duration_limit")
    assert world.steps()[-2:] == [("paused", "user"), ("paused", "duration_limit")]


def test_the_deadline_while_nobody_was_there_comes_before_the_refusal(world: World) -> None:
    steps = Steps(world)
    world.configure(f'on_attention = "{world.hook("")}"')
    world.start([decide(ON)], "--for", "1h")
    world.until(state="waiting")
    world.ok("close")
    before = kinds(world)
    assert world.loop()["pauseReason"] == "session_closed"
    assert world.loop()["deadlineRemainingMs"] > 0
    steps.set(2 * HOUR)
    assert world.loop()["deadlineRemainingMs"] == 0
    assert kinds(world) == before  # looking writes nothing
    refused = world.json("resume", code=4)
    assert "--for" in refused["error"]["message"]
    assert kinds(world)[len(before) :] == ["ticked"]
    assert world.recorded() is not None
    found = world.loop()
    assert (found["state"], found["pauseReason"]) == ("paused", "duration_limit")
    [event] = world.wait_for(world.received, "the hook")
    assert event == found["lastAttention"]
    world.json("resume", code=4)
    assert len(world.events("loop.attention")) == 1
    world.until_deserted()
    world.ok("update", "--for", "3h")
    assert world.loop()["pauseReason"] == "duration_limit"


def test_update_without_a_supervisor_and_bad_values_change_nothing(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    world.ask("close")
    world.until_deserted()
    before = world.journal()
    for argv in (("--every", "59s"), ("--every", "10"), ("--max-iterations", "0"), ("--for", "0s"), ()):
        assert world.run("update", *argv).code == 2, argv
    assert world.journal() == before
    changed = world.json("update", "--every", "2h", "--max-iterations", "60")["loop"]
    assert (changed["rhythm"], changed["maxIterations"]) == ({"kind": "fixed", "everyMs": 7_200_000}, 60)
    assert world.json("stop")["loop"]["state"] == "stopped"
    assert world.processes() == []


def test_the_deadline_while_queued_takes_the_wake_away(world: World) -> None:
    world.start([decide(ON), {"do": "omit", "wait_for": world.gate("talk")}], "--for", "2h")
    world.until(state="waiting", iterationCount=1)
    world.ask("say", text="a long job")
    world.until_event("assistant.turn_start", 2)
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    world.until(state="queued")
    world.ok("update", "--for", "6s")  # passes soon, or has passed already
    assert world.run("wait").code == 12
    world.open("talk")
    world.until_event("assistant.turn_end", 2)
    assert world.run("wait").code == 12
    assert (world.loop()["iterationCount"], len(world.said("loop"))) == (1, 1)
    assert len(world.events("loop.attention")) == 1
