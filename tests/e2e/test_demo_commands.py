"""pause, resume, stop, update, abort and close in every state, and what they mean to an iteration under way."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.demo_words import BLOCK, DONE, FAIL, ON, decide
from tests.support.steps import HOUR, Steps
from tests.support.world import QUICK, World

pytestmark = pytest.mark.slow


def busy(world: World) -> None:
    """A loop whose wake is due while the agent works on a user's message: queued."""
    script = [decide(ON), {"do": "omit", "text": "here you are", "wait_for": world.gate("talk")}, decide(DONE)]
    world.start(script)
    world.until(state="waiting", iterationCount=1)
    world.ask("say", text="a long job, please")
    world.until_event("assistant.turn_start", 2)
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    world.until(state="queued")


def test_pause_and_stop_in_waiting(world: World) -> None:
    world.start([decide(ON)])
    before = world.until(state="waiting")["loop"]
    assert world.json("pause")["loop"]["nextDueAt"] is None
    again = world.json("pause")["loop"]
    assert (again["state"], again["pauseReason"]) == ("paused", "user")
    assert world.json("resume")["loop"]["nextDueAt"] == before["nextDueAt"]
    stopped = world.json("stop")["loop"]
    assert (stopped["state"], stopped["nextDueAt"]) == ("stopped", None)
    assert world.run("wait").code == 15
    records = world.journal()
    for verb in ("stop", "pause", "resume"):
        assert world.run(verb).code == 4
    assert world.journal() == records
    assert len(world.said("loop")) == 1


def test_an_overdue_wake_fires_once_after_resume(world: World) -> None:
    steps = Steps(world)
    world.start([decide(ON), decide(ON, wait_for=world.gate("go"))])
    world.until(state="waiting", iterationCount=1)
    world.ask("pause")
    steps.set(3 * HOUR)
    assert world.ask("resume")["loop"]["iterationCount"] == 2
    world.open("go")
    world.until(state="waiting", iterationCount=2)
    assert len(world.said("loop")) == 2


def test_pause_in_queued_takes_the_wake_back(world: World) -> None:
    busy(world)
    paused = world.json("pause")["loop"]
    assert (paused["state"], paused["iterationCount"], paused["promptsSent"]) == ("paused", 1, 1)
    world.open("talk")
    world.until_event("assistant.turn_end", 2)
    assert world.peek()["loop"]["state"] == "paused"
    world.ok("resume")
    assert world.run("wait").code == 0
    assert len(world.said("loop")) == 2


def test_stop_in_queued_sends_nothing_any_more(world: World) -> None:
    busy(world)
    stopped = world.json("stop")["loop"]
    assert (stopped["state"], stopped["iterationCount"]) == ("stopped", 1)
    world.open("talk")
    world.until_event("assistant.turn_end", 2)
    world.ok("close")
    assert len(world.said("loop")) == 1


def test_close_in_queued_keeps_the_loop_for_later(world: World) -> None:
    busy(world)
    closed = world.json("close")["loop"]
    assert (closed["state"], closed["pauseReason"], closed["iterationCount"]) == ("paused", "session_closed", 1)
    assert world.pairs() == (2, 2)
    assert [event["data"]["reason"] for event in world.events("abort")] == ["shutdown"]
    world.ok("resume")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 2


def test_update_in_queued_runs_the_queued_wake_once(world: World) -> None:
    busy(world)
    world.ok("update", "--every", "2h")
    world.open("talk")
    assert world.run("wait").code == 0
    assert len(world.said("loop")) == 2


@pytest.mark.parametrize(
    ("args", "code", "events"), [(ON, 16, 0), (DONE, 0, 1), (BLOCK, 11, 1)], ids=["continue", "complete", "block"]
)
def test_pause_while_an_iteration_runs(world: World, args: dict[str, str], code: int, events: int) -> None:
    world.start([decide(args, wait_for=world.gate("go"))])
    world.until_event("assistant.turn_start")
    asked = world.json("pause")["loop"]
    assert (asked["state"], asked["intent"]) == ("running", "pause")
    world.open("go")
    world.until_event("assistant.turn_end")
    world.wait_for(lambda: world.peek()["loop"]["state"] != "running", "settlement")
    assert world.run("wait").code == code
    assert len(world.events("loop.attention")) == events


@pytest.mark.parametrize("args", [ON, DONE, FAIL, BLOCK], ids=lambda args: str(args["decision"]))
def test_stop_while_an_iteration_runs_has_the_last_word(world: World, args: dict[str, str]) -> None:
    world.start([decide(args, wait_for=world.gate("go"))])
    world.until_event("assistant.turn_start")
    asked = world.ask("stop")["loop"]
    assert (asked["state"], asked["intent"]) == ("running", "stop")
    assert world.run("resume").code == 4
    assert world.run("pause").code == 4
    world.open("go")
    world.until(state="stopped")
    assert world.run("wait").code == 15
    ended = world.loop()
    assert ended["lastDecision"]["decision"] == args["decision"]
    assert world.events("loop.attention") == []


def test_pause_then_resume_before_settlement_withdraws_it(world: World) -> None:
    world.start([decide(ON, wait_for=world.gate("go"))])
    world.until_event("assistant.turn_start")
    world.ask("pause")
    assert world.json("resume")["loop"]["intent"] is None
    world.open("go")
    world.until(state="waiting")


def test_abort_of_an_iteration_interrupts_and_resume_goes_on_at_once(world: World) -> None:
    world.start(["hang_tool", decide(DONE)])
    world.until_event("tool.execution_start")
    aborted = world.json("abort")["loop"]
    assert (aborted["state"], aborted["pauseReason"], aborted["protocolRetryCount"]) == ("paused", "interrupted", 0)
    assert world.pairs() == (1, 1)
    assert [event["data"]["reason"] for event in world.events("abort")] == ["user"]
    assert world.run("abort").code == 4
    world.ok("resume")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 2
    assert [event["data"]["status"] for event in world.events("loop.attention")] == ["completed"]


def test_stop_then_abort_ends_it_now(world: World) -> None:
    world.start(["hang"])
    world.until_event("assistant.turn_start")
    world.ok("stop")
    assert world.json("abort")["loop"]["state"] == "stopped"
    assert world.run("wait").code == 15


def test_close_while_an_iteration_runs(world: World) -> None:
    world.start(["hang", decide(DONE)])
    world.until_event("assistant.turn_start")
    [agent] = world.agents(world.supervisor())
    closed = world.json("close")
    assert closed["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}
    assert (closed["loop"]["pauseReason"], closed["loop"]["llmCalls"]) == ("session_closed", 1)
    world.until_over(agent)
    assert world.pairs() == (1, 1)
    world.until_deserted()
    world.ok("resume")
    assert world.run("wait").code == 0
    assert (world.loop()["iterationCount"], world.loop()["llmCalls"]) == (2, 2)


def test_close_after_an_accepted_decision_applies_it(world: World) -> None:
    world.start([decide(DONE, linger_for=world.gate("never"))])
    world.wait_for(lambda: world.peek()["loop"]["lastDecision"], "the accepted decision")
    assert world.json("close")["loop"]["state"] == "completed"
    assert world.run("wait").code == 0


def test_a_shorter_rhythm_than_has_passed_wakes_now(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    settled = world.until(state="waiting")["loop"]["calendarElapsedMs"]
    world.wait_for(lambda: world.peek()["loop"]["calendarElapsedMs"] > settled + 1500, "time")
    world.ok("update", "--every", "1s", "--min-delay", "1s")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 2


def test_a_lower_limit_pauses_at_once_but_not_in_an_iteration(world: World) -> None:
    world.start([decide(ON), decide(ON, wait_for=world.gate("go"))], *QUICK)
    world.until(state="running", iterationCount=2)
    running = world.json("update", "--max-iterations", "1")["loop"]
    assert (running["state"], running["maxIterations"]) == ("running", 1)
    world.open("go")
    assert world.run("wait").code == 13
    assert world.loop()["iterationCount"] == 2
    assert len(world.events("loop.attention")) == 1


def test_two_commands_at_once_are_both_answered(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    commands = [world.spawn(verb) for verb in ("pause", "stop", "pause", "stop", "resume")]
    ended = [world.finish(command) for command in commands]
    assert {one.code for one in ended} <= {0, 4}
    assert [one.code for one in ended].count(0) >= 1
    assert world.loop()["state"] == "stopped"


def test_stop_against_the_wake_never_wakes_afterwards(world: World) -> None:
    world.start([decide(ON)], "--every", "1h", "--min-delay", "1s", "--after", "1s")
    command: subprocess.Popen[str] = world.spawn("stop")
    assert world.finish(command).code == 0
    world.wait_for(lambda: world.peek()["loop"]["state"] == "stopped", "the stop")
    prompts = len(world.said("loop"))
    world.ask("say", text="are you there?", wait=True)
    assert len(world.said("loop")) == prompts <= 1
