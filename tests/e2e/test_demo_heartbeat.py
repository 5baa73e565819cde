"""The heartbeat with real processes: it reaches the hook and the log, and outlives no session."""

from __future__ import annotations

import pytest

from tests.support.demo_words import ON, decide
from tests.support.world import INSTANT, World

pytestmark = pytest.mark.slow


def test_it_reports_to_the_hook_and_the_log(world: World) -> None:
    world.configure(f'on_attention = "{world.hook("")}"\n')
    world.start([decide(ON)])
    world.until(state="waiting")
    begun = world.json("heartbeat", "start", "--every", "1s")
    assert (begun["heartbeat"]["state"], begun["heartbeat"]["everyMs"]) == ("active", 1000)
    event = world.until_event("session.heartbeat", 2)
    assert event["data"]["loop"]["state"] == "waiting"
    (told, *_) = world.wait_for(lambda: [it for it in world.received() if it["beat"] == 1], "the hook of the first")
    assert told["kind"] == "heartbeat"
    assert "status" not in told
    assert (told["session"]["name"], told["at"], told["beat"]) == ("project", INSTANT, 1)
    assert world.loop()["llmCalls"] == world.pairs()[0], "no model call"
    assert "heartbeat 1" in world.ok("logs").out
    assert "so far" in world.ok("heartbeat", "status").out
    assert world.json("heartbeat", "pause")["heartbeat"]["pauseReason"] == "user"
    world.ok("close")
    assert "heartbeat" not in world.json("heartbeat", "stop")
    assert world.run("heartbeat", "resume").code == 3


def test_killed_it_is_paused_and_a_resume_brings_the_session_back(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    world.ok("heartbeat", "start", "--every", "1s")
    world.until_event("session.heartbeat")
    world.kill(world.supervisor())
    assert world.json("status")["heartbeat"]["pauseReason"] == "supervisor_lost"
    assert world.json("heartbeat", "resume")["heartbeat"]["state"] == "active"
    assert world.loop()["pauseReason"] == "supervisor_lost", "the loop is resumed by its own command only"
    before = len(world.events("session.heartbeat"))
    world.until_event("session.heartbeat", before + 1)
