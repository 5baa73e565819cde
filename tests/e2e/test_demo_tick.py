"""Loops that `loopsup tick` drives, with real processes: nobody waits, and nothing fires twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.demo_words import DONE, ON, decide
from tests.support.world import INSTANT, World

pytestmark = pytest.mark.slow

PATIENT_S = 180.0  # a tick waits for its iteration, on a busy machine
TICK = ("--driver", "tick")
NOW = (*TICK, "--every", "1s", "--min-delay", "1s")
HEAVY = ("asyncio", "psutil", "loopsup.offline", "loopsup.core.step", "loopsup.ports", "loopsup.shell")
CODE = f"""
import sys
from loopsup.cli.app import run
code = run(["tick", "--json"])
print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""


def outcomes(world: World, *argv: str, code: int = 0) -> dict[str, str]:
    return {
        each["name"]: each["outcome"] for each in world.json("tick", *argv, code=code, timeout=PATIENT_S)["sessions"]
    }


def test_nobody_waits_and_each_tick_goes_on_in_the_same_conversation(world: World) -> None:
    begun = world.start([decide(ON), decide(DONE)], *TICK, "--every", "1s", "--min-delay", "1s")
    assert (begun["loop"]["state"], begun["loop"]["driver"]) == ("waiting", "tick")
    assert world.processes() == [], "start leaves nobody behind"
    assert world.loop()["lastTickAt"] is None
    assert outcomes(world) == {"project": "fired"}
    assert world.processes() == []
    loop = world.loop()
    assert (loop["state"], loop["iterationCount"], loop["lastTickAt"]) == ("waiting", 1, INSTANT)
    world.wait_for(lambda: outcomes(world) == {"project": "fired"}, "the second wake to be due")
    assert world.loop()["state"] == "completed"
    assert world.run("wait").code == 0
    assert len({event["data"]["agentSessionId"] for event in world.events("session.start", "session.resume")}) == 1
    assert outcomes(world) == {}


def test_ticks_at_the_same_time_fire_once(world: World) -> None:
    gate = world.gate("go")
    world.start([decide(ON, wait_for=gate), decide(DONE)], *TICK, "--every", "1h")
    ticks = [world.spawn("tick", "--json") for _ in range(4)]
    world.wait_for(lambda: len(world.said("loop")) == 1, "the one iteration")
    world.open("go")
    ended = [world.finish(tick, PATIENT_S) for tick in ticks]
    assert [one.code for one in ended] == [0] * 4, ended
    assert len(world.said("loop")) == 1
    assert world.loop()["iterationCount"] == 1


def test_a_tick_during_an_iteration_leaves_it_and_says_so(world: World) -> None:
    gate = world.gate("go")
    world.start([decide(DONE, wait_for=gate)], *TICK)
    assert outcomes(world, "--detach") == {"project": "fired"}
    world.until(state="running")
    assert outcomes(world) == {"project": "left"}
    told = world.ok("tick").out
    assert "an iteration is under way already" in told
    world.open("go")
    assert world.run("wait", "--timeout", "100s").code == 0


def test_a_tick_fires_no_loop_that_has_a_supervisor_and_none_for_it(world: World) -> None:
    world.start([decide(ON)], "--after", "1h")
    world.start([decide(ON)], *TICK, "--session", "ticked")
    pid = world.supervisor()
    assert outcomes(world) == {"ticked": "fired"}
    assert world.loop()["iterationCount"] == 0
    assert world.supervisor() == pid
    world.ok("stop", "--session", "project")


def test_a_viewer_does_not_fire_it_and_a_tick_still_does(world: World) -> None:
    """Somebody talks to the agent and watches: the wake is the tick's all the same, fired in that supervisor."""
    world.start([{"do": "omit", "text": "well"}, decide(ON)], *TICK)
    world.ok("say", "--wait", "how is it going?")
    assert world.loop()["iterationCount"] == 0, "due since its start"
    assert outcomes(world) == {"project": "fired"}
    world.until(iterationCount=1, state="waiting")


def test_commands_need_no_supervisor(world: World) -> None:
    world.start([decide(ON)], *TICK, "--after", "1h")
    assert world.json("pause")["loop"]["pauseReason"] == "user"
    assert outcomes(world) == {}
    assert world.json("update", "--every", "2h")["loop"]["rhythm"]["everyMs"] == 7_200_000
    assert world.json("resume")["loop"]["state"] == "waiting"
    assert world.json("close")["loop"]["pauseReason"] == "session_closed"
    assert world.json("resume")["loop"]["state"] == "waiting"
    assert world.json("stop")["loop"]["state"] == "stopped"
    assert world.processes() == []


def test_a_killed_iteration_pauses_at_the_next_tick(world: World) -> None:
    world.start([decide(DONE, wait_for=world.gate("never"))], *TICK)
    ticking = world.spawn("tick")
    world.until(state="running")
    world.wait_for(lambda: len(world.said("loop")) == 1, "the hand-over")
    world.kill(world.supervisor())
    world.finish(ticking, PATIENT_S)
    assert world.loop()["pauseReason"] == "supervisor_lost"
    assert outcomes(world) == {"project": "tidied"}
    assert outcomes(world) == {}
    assert len(world.said("loop")) == 1


def test_wait_waits_across_ticks(world: World) -> None:
    world.start([decide(ON), decide(DONE)], *NOW)
    waiting = world.spawn("wait", "--json")
    world.wait_for(lambda: outcomes(world) == {} and world.loop()["state"] == "completed", "both iterations", 90)
    assert world.finish(waiting, 60).code == 0
    assert world.run("wait", "--timeout", "1s").code == 0


def test_what_cannot_be_said_together(world: World) -> None:
    refused = world.json("start", *TICK, "--every", "1h", "--agent", "demo", "--foreground", "x", code=2)
    assert "--driver tick" in refused["error"]["message"]
    assert not (world.home / "sessions").exists() or world.json("ls")["sessions"] == []


def test_with_nothing_due_hardly_anything_is_imported(world: World) -> None:
    world.start([decide(ON)], *TICK, "--after", "1h")
    argv = [sys.executable, "-c", CODE]
    done = subprocess.run(argv, cwd=world.project, env=world.env, capture_output=True, check=False)
    assert done.stderr.decode().splitlines() == ["0 []"]
    assert world.run("tick") == (0, "", ""), "cron would mail it"
