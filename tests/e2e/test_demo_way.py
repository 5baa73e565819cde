"""The whole way with the demo agent: start, wake, decide, and the exit code that says so."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.demo_words import BLOCK, DONE, FAIL, ON, decide
from tests.support.world import COUNT, INSTANT, QUICK, UUID, World

pytestmark = pytest.mark.slow


def session_facts(world: World, pid: int | None, clients: int = 0) -> dict[str, Any]:
    return {
        "name": "project",
        "id": UUID,
        "agent": "demo",
        "agentSessionId": UUID,
        "file": None,
        "cwd": str(world.project),
        "supervisor": {"alive": pid is not None, "responding": pid is not None, "pid": pid},
        "clients": clients,
        "problem": None,
        "parked": False,
    }


def loop_facts(state: str, **differs: object) -> dict[str, Any]:
    return {
        "id": UUID,
        "objective": "wait for run 42",
        "state": state,
        "pauseReason": None,
        "intent": None,
        "late": False,
        "iterationCount": 1,
        "maxIterations": 50,
        "protocolRetryCount": 0,
        "promptsSent": 1,
        "llmCalls": 1,
        "rhythm": {"kind": "fixed", "everyMs": 3_600_000},
        "minDelayMs": 60_000,
        "maxDelayMs": 86_400_000,
        "forMs": 86_400_000,
        "startedAt": INSTANT,
        "deadlineAt": INSTANT,
        "calendarElapsedMs": COUNT,
        "deadlineRemainingMs": COUNT,
        "nextDueAt": None,
        "driver": "resident",
        "lastTickAt": None,
        "lastDecision": None,
        "question": None,
        "recovery": None,
        "lost": None,
        "misfire": "once",
        "lastMissed": None,
        "lastAttention": None,
    } | differs


def decision(args: dict[str, str], iteration: int = 1) -> dict[str, Any]:
    return {**args, "nextDelayMs": None, "iteration": iteration, "at": INSTANT}


def attention(world: World, status: str, args: dict[str, str], **differs: object) -> dict[str, Any]:
    return {
        "version": 1,
        "status": status,
        "summary": args["summary"],
        "evidence": {"source": "agent", "text": args["evidence"]},
        "objective": "wait for run 42",
        "iterationCount": 1,
        "maxIterations": 50,
        "protocolRetryCount": 0,
        "calendarElapsedMs": COUNT,
        "deadlineRemainingMs": COUNT,
        "session": {"id": UUID, "cwd": str(world.project)},
        "endedAt": INSTANT,
        "observedAt": INSTANT,
    } | differs


def test_the_whole_status_at_every_stage(world: World) -> None:
    script = [decide(ON, wait_for=world.gate("first")), decide(DONE, wait_for=world.gate("second"))]
    started = world.start(script, objective="wait for run 42")
    pid = started["session"]["supervisor"]["pid"]
    assert started == {
        "version": 1,
        "session": session_facts(world, pid),
        "loop": loop_facts("running", llmCalls=COUNT),
    }
    world.wait_for(lambda: world.events("assistant.turn_start"), "the model request")
    assert world.json("status") == {
        "version": 1,
        "session": session_facts(world, pid),
        "loop": loop_facts("running"),
    }
    world.open("first")
    waiting = world.until(state="waiting")
    assert waiting == {
        "version": 1,
        "session": session_facts(world, pid),
        "loop": loop_facts("waiting", nextDueAt=INSTANT, lastDecision=decision(ON)),
    }
    paused = world.json("pause")
    assert paused["loop"] == loop_facts("paused", pauseReason="user", lastDecision=decision(ON))
    due_again = world.json("resume")
    assert due_again["loop"] == loop_facts(
        "waiting", nextDueAt=waiting["loop"]["nextDueAt"], lastDecision=decision(ON)
    )
    updated = world.json("update", "--every", "1s", "--min-delay", "1s")
    changed = {"rhythm": {"kind": "fixed", "everyMs": 1000}, "minDelayMs": 1000}
    assert updated["loop"]["rhythm"] == changed["rhythm"]
    world.until(state="running", iterationCount=2, llmCalls=2)
    world.open("second")
    ended = world.json("wait")
    last = loop_facts(
        "completed",
        **changed,
        iterationCount=2,
        promptsSent=2,
        llmCalls=2,
        lastDecision=decision(DONE, 2),
        lastAttention=attention(world, "completed", DONE, iterationCount=2),
    )
    assert ended == {"version": 1, "session": session_facts(world, pid), "loop": last}
    closed = world.json("close")
    assert closed == {"version": 1, "session": session_facts(world, None), "loop": last}
    assert world.json("status") == closed
    world.until_over(pid)
    assert world.processes() == []


@pytest.mark.timeout(600)  # thirty commands, one after the other
def test_every_code_of_wait_in_one_conversation(world: World) -> None:
    script = [decide(DONE), decide(FAIL), decide(BLOCK), decide(ON), "omit", "omit", decide(ON), "hang"]
    world.start(script)
    pid = world.supervisor()
    again = ("start", "--detach", "--every", "1h")
    assert world.run("wait").code == 0
    world.ok(*again, "the second")
    assert world.run("wait").code == 10
    world.ok(*again, "the third")
    assert world.run("wait").code == 11
    world.ok("stop")
    assert world.run("wait").code == 15
    world.ok(*again, "--max-iterations", "1", "the fourth")
    assert world.run("wait").code == 13
    world.ok("stop")
    world.ok(*again, "the fifth")
    assert world.run("wait").code == 14
    world.ok("stop")
    world.ok(*again, "the sixth")
    world.until(state="waiting")
    late = world.run("wait", "--timeout", "1s", "--json")
    assert late.code == 124
    assert late.obj["error"]["exit"] == 124
    world.ok("pause")
    assert world.run("wait").code == 16
    world.ok("stop")
    world.ok(*again, "the seventh")
    world.until_event("assistant.turn_start", 8)
    world.ok("update", "--for", "1s")  # passes soon, or has passed already
    assert world.run("wait").code == 12
    world.ok("abort")
    world.until(state="paused", pauseReason="duration_limit")
    world.ok("stop")
    world.ok(*again, "the eighth")
    world.until_event("assistant.turn_start", 9)
    waiting = world.spawn("wait", "--json")
    world.wait_for(lambda: world.peek()["session"]["clients"], "the waiting client")
    world.ok("abort")
    interrupted = world.finish(waiting)
    assert (interrupted.code, interrupted.obj["loop"]["pauseReason"]) == (16, "interrupted")
    world.ok("resume")
    world.until(state="running")
    waiting = world.spawn("wait", "--json")
    world.wait_for(lambda: world.peek()["session"]["clients"], "the waiting client")
    world.ok("close")
    closed = world.finish(waiting)
    assert (closed.code, closed.obj["loop"]["pauseReason"]) == (17, "session_closed")
    assert world.run("wait").code == 17
    assert len({event["data"]["agentSessionId"] for event in world.events("session.start", "session.resume")}) == 1
    world.until_over(pid)


def test_a_following_start_shows_the_iterations_and_exits_with_the_outcome(world: World) -> None:
    script = world.script([decide(ON), decide(BLOCK)])
    argv = ("start", *QUICK, "--agent", "demo", "--json", "watch", "--", "--script", str(script))
    followed = world.run(*argv)
    assert followed.code == 11
    *events, status = followed.lines
    assert status["loop"]["pauseReason"] == "blocked"
    stored = [event for event in events if event["type"] not in ("assistant.message_delta", "session.idle")]
    assert [event["seq"] for event in stored] == sorted({event["seq"] for event in stored})
    assert stored[-1] in world.events()[-3:]
    kinds = [event["type"] for event in stored]
    assert kinds.count("user.message") == kinds.count("assistant.turn_end") == 2
    people = world.run("start", "--every", "1h", "once more", "--session", "project")
    assert people.code == 4  # paused as blocked
    assert "--session" in people.err


def test_foreground_exits_with_the_outcome_and_leaves_nothing(world: World) -> None:
    script = world.script([decide(ON), decide(FAIL)])
    argv = ("start", "--foreground", *QUICK, "--agent", "demo", "--json", "watch", "--", "--script", str(script))
    done = world.run(*argv)
    assert done.code == 10, done
    assert done.obj["loop"]["state"] == "failed"
    assert done.obj["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}
    assert world.processes() == []


def test_foreground_closes_on_term_and_keep_stays(world: World) -> None:
    script = world.script([decide(DONE), "hang"])
    tail = ("--every", "1h", "--agent", "demo", "first", "--", "--script", str(script))
    process = world.spawn("start", "--foreground", "--keep", *tail)
    world.wait_for(lambda: world.folder().exists(), "the session")
    world.until(state="completed")
    world.ok("start", "--detach", "--every", "1h", "second")
    world.until_event("assistant.turn_start", 2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    ended = world.finish(process)
    assert ended.code == 17
    assert world.loop()["pauseReason"] == "session_closed"
    starts, ends = world.events("assistant.turn_start"), world.events("assistant.turn_end")
    assert len(starts) == len(ends) == world.loop()["llmCalls"] + 1 == 2
    assert world.processes() == []


def test_every_verb_speaks_json_and_refusals_are_one_object(world: World) -> None:
    nobody = world.json("status", code=3)
    assert nobody == {"version": 1, "error": {"exit": 3, "kind": "not_found", "message": nobody["error"]["message"]}}
    world.start([decide(ON, wait_for=world.gate("go")), "hang"])
    refused = world.json("resume", code=4)
    assert refused["error"]["kind"] == "refused"
    world.open("go")
    world.until(state="waiting")
    for verb, argv in (
        ("status", ()),
        ("update", ("--max-iterations", "7")),
        ("pause", ()),
        ("pause", ()),
        ("resume", ()),
        ("say", ("hello",)),
        ("abort", ()),
        ("stop", ()),
    ):
        if verb == "abort":
            world.until_event("assistant.turn_start", 2)
        assert set(world.json(verb, *argv)) == {"version", "session", "loop"}, verb
    assert world.json("abort", code=4)["error"]["message"]
    assert world.json("answer", "allow", code=4)["error"]["message"]
    for verb in ("pause", "resume", "stop"):
        assert world.json(verb, code=4)["error"]["kind"] == "refused", verb
    assert world.json("update", "--every", "2h", code=4)["error"]["kind"] == "refused"
    assert world.json("update", code=2)["error"]["kind"] == "usage"
    listed = world.json("ls")
    assert "project" in str(listed)
    assert world.ok("logs", "--json").lines == world.events()
    rows = world.ok("history", "--json").lines
    assert [row["type"] for row in rows][:2] == ["loop", "iteration"]
    world.json("close")
    assert world.json("close")["session"]["supervisor"]["alive"] is False
    for verb, argv in (("attach", ()), ("abort", ()), ("answer", ("deny",))):
        assert world.json(verb, *argv, code=5)["error"]["exit"] == 5


def test_the_agent_names_its_own_pace(world: World) -> None:
    later, sooner = {**ON, "nextDelay": "2h"}, {**ON, "nextDelay": "1s"}
    calls = {"do": "calls", "turns": [[{"args": later}], [{"args": sooner}]]}  # the first is out of range
    world.start([calls, decide(later), decide(DONE)], "--every", "auto", "--min-delay", "1s", "--max-delay", "1h")
    assert world.run("wait").code == 0
    tries = [event["data"]["success"] for event in world.events("tool.execution_complete")]
    assert tries == [False, True, False, True]  # the third was out of range as well, the reminder brought the last
    found = world.loop()
    assert (found["iterationCount"], found["protocolRetryCount"]) == (2, 1)
    assert found["rhythm"] == {"kind": "auto", "minDelayMs": 1000, "maxDelayMs": 3_600_000}
    waits = [record for record in world.journal() if record["loop"]["phase"]["type"] == "waiting"]
    assert waits[0]["loop"]["last_decision"]["next_delay_ms"] == 1000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_foreground_ended_before_its_agent_is_up_leaves_nothing(world: World, number: signal.Signals) -> None:
    script = str(world.script({"start": [{"wait_for": world.gate("never")}], "prompts": []}))
    process = world.spawn("start", "--foreground", *QUICK, "--agent", "demo", "x", "--", "--script", script)
    world.wait_for((world.folder() / "lock").exists, "its supervisor")
    process.send_signal(number)
    if number == signal.SIGHUP:  # means nothing once the supervisor listens
        process.send_signal(signal.SIGTERM)
    assert world.finish(process).code in (5, 130)
    assert [path.name for path in world.home.glob("sessions/*") if path.name != ".lock"] == []
    assert world.processes() == []
