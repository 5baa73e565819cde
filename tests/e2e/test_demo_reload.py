"""Reload, and the way back after a reboot: what was there goes on, and nothing fires twice (L-111 to L-116, D-45)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.demo_words import DONE, ON, decide
from tests.support.world import World

pytestmark = pytest.mark.slow

KEPT = ("id", "iterationCount", "promptsSent", "llmCalls", "startedAt", "deadlineAt", "nextDueAt", "lastDecision")
SYSTEMCTL = '#!/bin/sh\necho "$@" >> "$0.calls"\n'


def ups(world: World) -> int:
    return world.log().count("supervisor up")


def machine(world: World) -> Path:
    """A systemd that only writes down what it is asked; the file it writes into."""
    tools = world.root / "bin"
    tools.mkdir()
    tool = tools / "systemctl"
    tool.write_text(SYSTEMCTL)
    tool.chmod(0o755)
    world.env["PATH"] = f"{tools}:{world.env['PATH']}"
    return tools / "systemctl.calls"


def shut_down(world: World) -> None:
    """What a machine does to its processes before it is switched off."""
    pid = world.supervisor()
    world.kill(pid, signal.SIGTERM)
    world.until_over(pid)


def test_a_reload_keeps_everything_but_the_program(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    before = world.until(state="waiting", iterationCount=1)
    pid = world.supervisor()
    told = world.json("reload")
    assert told["session"]["supervisor"] == {"alive": True, "responding": True, "pid": pid}
    assert {key: told["loop"][key] for key in KEPT} == {key: before["loop"][key] for key in KEPT}
    assert told["loop"]["state"] == "waiting"
    assert ups(world) == 2
    assert [event["data"]["reason"] for event in world.events("session.shutdown")] == ["reload"]
    world.ok("update", "--every", "1s", "--min-delay", "1s")
    world.until(state="completed", iterationCount=2)
    assert len(world.said("loop")) == 2
    ids = {event["data"]["agentSessionId"] for event in world.events("session.start", "session.resume")}
    assert len(ids) == 1


def test_who_follows_or_waits_goes_on_over_a_reload(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting", iterationCount=1)
    waiting, reading = world.spawn("wait", "--json"), world.spawn("logs", "-f")
    world.wait_for(lambda: world.status()["session"]["clients"] == 2, "both to be there")
    world.ok("reload")
    world.wait_for(lambda: world.status()["session"]["clients"] == 2, "both to be there again")
    world.ok("update", "--every", "1s", "--min-delay", "1s")
    world.until(state="completed")
    waited = world.finish(waiting)
    assert (waited.code, waited.obj["loop"]["state"]) == (0, "completed"), waited
    world.ok("close")
    read = world.finish(reading)
    assert read.code == 0, read
    assert read.out.count("── iteration 2 ") == 1, read.out
    assert "supervisor_lost" not in read.out, read.out
    assert "ended without closing" not in read.out, read.out


def test_a_start_in_the_foreground_shows_its_end_also_after_a_reload(world: World) -> None:
    script = str(world.script([decide(ON), decide(DONE)]))
    process = world.spawn(
        "start", "--foreground", "--json", "--every", "1h", "--agent", "demo", "x", "--", "--script", script
    )
    world.wait_for(lambda: world.folder().exists(), "the session")
    world.until(state="waiting", iterationCount=1)
    world.ok("reload")
    assert ups(world) == 2
    world.ok("update", "--every", "1s", "--min-delay", "1s")
    ended = world.finish(process)
    assert (ended.code, ended.obj["loop"]["state"]) == (0, "completed"), ended
    assert ended.obj["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}


def test_a_reload_is_refused_in_a_turn(world: World) -> None:
    world.start([decide(DONE, wait_for=world.gate("go"))])
    world.until(state="running")
    assert world.run("reload").code == 4
    assert ups(world) == 1
    world.open("go")
    assert world.run("wait", "--timeout", "100s").code == 0
    assert world.run("close").code == 0
    assert world.run("reload").code == 5


def test_an_enabled_session_comes_back_after_a_reboot(world: World) -> None:
    calls = machine(world)
    world.start([decide(ON), decide(DONE)])
    world.until(iterationCount=1, state="waiting")
    world.ok("heartbeat", "start", "--every", "1h")
    world.ok("enable")
    [unit] = (world.root / "config" / "systemd" / "user").glob("loopsup-*-session-project.service")
    assert '"reopen" "--session" "project"' in unit.read_text()
    assert calls.read_text().splitlines()[-1] == f"--user enable {unit.name}"
    before = world.loop()
    shut_down(world)
    status = world.status()
    assert status["loop"]["pauseReason"] == "supervisor_lost", "nobody could fire it now"
    unit_run = world.spawn("reopen", "--session", "project")
    back = world.until(state="waiting")
    assert {key: back["loop"][key] for key in KEPT} == {key: before[key] for key in KEPT}
    assert back["heartbeat"]["state"] == "active"
    world.ok("update", "--every", "1s", "--min-delay", "1s")
    world.until(state="completed")
    assert len(world.said("loop")) == 2
    world.ok("heartbeat", "stop")
    world.ok("disable")
    assert not unit.exists()
    world.ok("close")
    assert world.finish(unit_run).code == 0


def test_what_was_closed_or_cut_off_does_not_go_on(world: World) -> None:
    machine(world)
    world.start([decide(DONE, wait_for=world.gate("never"))])
    world.ok("enable")
    world.until(state="running")
    world.wait_for(lambda: len(world.said("loop")) == 1, "the hand-over")
    world.kill(world.supervisor())
    unit_run = world.spawn("reopen", "--session", "project")
    world.wait_for(lambda: ups(world) == 2, "the second supervisor")
    world.until(state="paused", pauseReason="supervisor_lost")
    world.ok("close")
    assert world.finish(unit_run).code == 0
    done = world.ok("reopen", "--session", "project")
    assert "nothing that could go on" in done.err
    assert len(world.said("loop")) == 1
    assert world.processes() == []
