"""Sessions that close by themselves, with real processes: nothing is lost, and the next command just works."""

from __future__ import annotations

import pytest

from tests.support.demo_words import DONE, ON, decide
from tests.support.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # each wait has its own bound; there are several


def reasons(world: World, session: str) -> list[str]:
    return [event["data"]["reason"] for event in world.events("session.shutdown", session=session)]


def test_case_183_of_more_sessions_than_are_wanted_the_idle_ones_close(world: World) -> None:
    for name in ("one", "two"):
        world.start([decide(DONE)], "--session", name)
        world.until(session=name, state="completed")
    pids = [world.supervisor(name) for name in ("one", "two")]
    world.configure("[reaper]\nsession_cap = 1\n")
    world.start([decide(ON)], "--session", "three")
    for pid in pids:
        world.until_over(pid)
    assert (reasons(world, "one"), reasons(world, "two")) == (["session_cap"], ["session_cap"])
    world.until(session="three", state="waiting")
    assert world.status("three")["session"]["supervisor"]["alive"]
    world.ok("start", "--detach", "--session", "one", "--every", "1h", "the next one")  # nothing of it is lost
    world.until(session="one", state="waiting")
    assert world.status("three")["loop"]["state"] == "waiting"


def test_a_paused_session_nobody_follows_goes_at_once_and_takes_the_next_command(world: World) -> None:
    """H-20, D-32: released behind the pause, and what is said right after it is not refused."""
    world.env["LOOPSUP_ORPHAN_REAP_GRACE_S"] = "0.5"
    world.start([decide(ON)])
    pid = world.supervisor()
    world.until(state="waiting")
    world.wait_for(lambda: world.journal()[-1]["loop"]["phase"]["type"] == "waiting", "the record")
    paused = world.json("pause")
    assert (paused["loop"]["state"], paused["loop"]["pauseReason"]) == ("paused", "user")
    changed = world.json("update", "--every", "2h")
    assert changed["loop"]["rhythm"] == {"kind": "fixed", "everyMs": 7_200_000}
    world.until_over(pid)
    assert reasons(world, "project") == ["idle"]
    assert world.recorded()["phase"] | {"next_due_at": None} == {
        "type": "paused",
        "reason": "user",
        "next_due_at": None,
        "flight": None,
    }
    assert world.json("resume")["loop"]["state"] == "waiting"
    assert world.supervisor() != pid
    assert len(world.said("loop")) == 1
