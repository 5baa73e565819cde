"""`start --park` with a real agent process: gone between the wakes, back in the same conversation."""

from __future__ import annotations

import psutil
import pytest

from tests.support.demo_words import DONE, ON, decide
from tests.support.steps import HOUR, Steps
from tests.support.world import World

pytestmark = pytest.mark.slow


def test_a_parked_agent_comes_back_for_the_wake_and_after_its_supervisor_was_killed(world: World) -> None:
    steps = Steps(world)
    world.start([decide(ON), decide(ON), decide(DONE)], "--park", "--every", "1h")
    world.until_event("loop.notice", message="the agent is closed until the next wake (--park)")
    pid = world.supervisor()
    world.wait_for(lambda: psutil.Process(pid).children() == [], "the end of the agent")
    steps.set(HOUR)
    world.until_event("session.resume")
    assert world.supervisor() == pid
    world.wait_for(lambda: world.peek()["session"]["parked"], "the agent to be closed again")
    world.kill(pid)
    assert not world.status()["session"]["parked"]
    world.ok("resume")
    steps.set(3 * HOUR)
    assert world.run("wait").code == 0
    found = world.events("session.start", "session.resume")
    assert len({event["data"]["agentSessionId"] for event in found}) == 1
    assert len(world.said("loop")) == world.loop()["iterationCount"] == 3
    assert "the agent is closed until the next wake (--park)" in world.log()
