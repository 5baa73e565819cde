"""The attention hook and the watchdog, with real processes."""

from __future__ import annotations

import json

import pytest

from tests.support.demo_words import BLOCK, DONE, ON, decide
from tests.support.steps import HOUR, Steps
from tests.support.world import INSTANT, QUICK, World

pytestmark = pytest.mark.slow


def test_the_hook_gets_exactly_the_event_after_the_state_is_safe(world: World) -> None:
    body = (
        f"record = open('{world.home}/sessions/project/journal.jsonl', 'rb').read().splitlines()[-1]\n"
        f"open('{world.root}/seen', 'wb').write(record)\n"
    )
    world.configure(f'on_attention = "{world.hook(body)}"')
    started = world.start([decide(BLOCK)], objective="ação 'x' \u2028 $(rm -rf /)")
    assert world.run("wait").code == 11
    [event] = world.wait_for(world.received, "the hook")
    assert event == {
        "version": 1,
        "status": "blocked",
        "summary": "no key",
        "evidence": {"source": "agent", "text": "401 from the registry"},
        "objective": "ação 'x' \u2028 $(rm -rf /)",
        "iterationCount": 1,
        "maxIterations": 50,
        "protocolRetryCount": 0,
        "calendarElapsedMs": event["calendarElapsedMs"],
        "deadlineRemainingMs": 86_400_000 - event["calendarElapsedMs"],
        "session": {"id": started["session"]["agentSessionId"], "cwd": str(world.project)},
        "endedAt": INSTANT,
        "observedAt": INSTANT,
    }
    assert world.loop()["lastAttention"] == event
    [shown] = world.events("loop.attention")
    assert shown["data"] == event
    told = world.until_event("loop.hook")
    assert (told["data"]["exit"], "error" in told["data"]) == (0, False)
    record = json.loads((world.root / "seen").read_bytes())
    assert record["loop"]["phase"]["reason"] == "blocked"
    transition = world.events("loop.transition")[-1]
    assert transition["seq"] < shown["seq"] < told["seq"]


def test_a_hook_that_hangs_delays_nothing_and_is_ended(world: World) -> None:
    """The first says itself when the agent may go on: what follows has the ten seconds of a hook, whoever watches."""
    steps = Steps(world)
    body = f"open({world.gate('go')!r}, 'w').close(); time.sleep(3600)"
    world.configure(f'on_attention = "{world.hook(body)}"')
    world.start([decide(DONE, wait_for=world.gate("go"))], "--for", "1h")
    waiting = world.spawn("wait", "--json")
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the one who waits")
    world.until_event("assistant.turn_start")
    steps.set(2 * HOUR)
    ended = world.until_event("loop.transition", to="completed")
    assert world.finish(waiting).code == 12
    first, second = world.until_event("loop.hook", 1), world.until_event("loop.hook", 2)
    assert ended["seq"] < first["seq"]  # it hung all the while
    for told in (first, second):
        assert (told["data"]["timeout"], told["data"]["signal"]) == (True, "SIGTERM")
        assert told["data"]["durationMs"] >= 10_000
    assert [event["status"] for event in world.received()] == ["duration_limit", "completed"]


def test_a_hook_that_fails_is_shown_and_not_tried_again(world: World) -> None:
    world.configure(f'on_attention = "{world.hook("print(chr(80) * 3); sys.exit(3)")}"')
    world.start([decide(DONE)])
    assert world.run("wait").code == 0
    told = world.until_event("loop.hook")
    assert (told["data"]["exit"], told["data"]["stderr"].strip()) == (3, "PPP")
    assert world.loop()["state"] == "completed"
    world.ok("close")
    assert len(world.received()) == 1
    assert "PPP" in world.ok("logs").out or "exit status 3" in world.ok("logs").out


@pytest.mark.parametrize("path", ["hook.sh", "/nowhere/hook", "/bin/sh -c 'touch probe'"])
def test_what_is_no_hook_is_told_and_never_run_by_a_shell(world: World, path: str) -> None:
    world.configure(f'on_attention = "{path}"')
    world.start([decide(DONE)])
    assert world.run("wait").code == 0
    told = world.until_event("loop.hook")
    assert told["data"]["error"]
    assert not (world.project / "probe").exists()


def test_pause_stop_and_close_call_no_hook(world: World) -> None:
    world.configure(f'on_attention = "{world.hook("")}"')
    world.start([decide(ON)])
    world.until(state="waiting")
    for verb in ("pause", "resume", "close", "resume", "stop", "close"):
        world.ok(verb)
    assert world.events("loop.attention", "loop.hook") == []
    assert world.received() == []


def test_a_crash_before_the_hook_loses_only_the_hook(world: World) -> None:
    world.start([decide(BLOCK)])
    assert world.run("wait").code == 11
    world.kill(world.supervisor())
    world.configure(f'on_attention = "{world.hook("")}"')
    assert world.loop()["pauseReason"] == "blocked"
    world.ok("close")
    world.ok("stop")
    assert world.received() == []


def test_a_silent_model_is_aborted_reminded_and_then_a_protocol_error(world: World) -> None:
    world.configure('[agent]\nsilence_timeout = "5s"\n')
    world.start(["hang", "hang", decide(DONE)])
    assert world.run("wait").code == 14
    found = world.loop()
    assert (found["protocolRetryCount"], found["promptsSent"], found["iterationCount"]) == (1, 2, 1)
    assert "silent" in found["lastAttention"]["evidence"]["text"]
    assert [event["data"]["reason"] for event in world.events("abort")] == ["watchdog", "watchdog"]
    assert len(world.said("protocol")) == 1
    assert ("paused", "interrupted") not in world.steps()
    assert world.pairs() == (2, 2)
    assert found["llmCalls"] == 2
    world.ok("resume")
    assert world.run("wait").code == 0


def test_a_reminder_after_silence_can_still_decide(world: World) -> None:
    world.configure('[agent]\nsilence_timeout = "5s"\n')
    world.start(["hang", decide(DONE)])
    assert world.run("wait").code == 0
    assert (world.loop()["protocolRetryCount"], world.loop()["iterationCount"]) == (1, 1)


def test_a_long_tool_and_a_pending_question_are_no_silence(world: World) -> None:
    world.configure('[agent]\nsilence_timeout = "5s"\n[permissions]\ntimeout = "8s"\n')
    world.start(["ask", "hang_tool"], *QUICK)
    assert world.run("wait").code == 11  # denied after 8 s, not aborted after 5
    world.ok("resume")
    world.until_event("tool.execution_start", 3)
    begun = world.peek()["loop"]["calendarElapsedMs"]
    world.wait_for(lambda: world.peek()["loop"]["calendarElapsedMs"] > begun + 7000, "time")
    assert world.peek()["loop"]["state"] == "running"
    assert world.events("abort") == []
