"""What dies comes back, or says how it died: the supervisor, the agent, a start that fails."""

from __future__ import annotations

import os
import shlex
import shutil
import signal

import psutil
import pytest

from tests.support.demo_words import BLOCK, DONE, ON, decide
from tests.support.steps import HOUR, Steps
from tests.support.world import LOOPSUP, QUICK, SLOW, World, words

pytestmark = pytest.mark.slow


def squeezed(text: str) -> str:
    """Without the line breaks and indents of a narrow terminal."""
    return " ".join(text.split())


def conversations(world: World) -> set[str]:
    found = world.events("session.start", "session.resume")
    return {event["data"]["agentSessionId"] for event in found}


def test_a_supervisor_killed_in_waiting(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    before = world.until(state="waiting")["loop"]
    pid = world.supervisor()
    world.kill(pid)
    found = world.json("status")
    assert found["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}
    lost = {"state": "paused", "pauseReason": "supervisor_lost", "nextDueAt": None}
    last = world.events()[-1]["at"]
    lost["lost"] = {"lastSeenAt": last, "iteration": None, "delivery": None, "decision": None}
    clocks = {key: found["loop"][key] for key in ("calendarElapsedMs", "deadlineRemainingMs")}
    assert found["loop"] == {**before, **lost, **clocks}
    assert world.run("wait").code == 17
    assert "supervisor_lost" in world.ok("ls", "--json").out
    assert world.recorded()["phase"]["type"] == "waiting"  # looking writes nothing
    assert world.run("attach").code == 5
    resumed = world.json("resume")  # not re-armed by itself; the wake that was planned is kept
    assert (resumed["loop"]["state"], resumed["loop"]["nextDueAt"]) == ("waiting", before["nextDueAt"])
    assert ("paused", "supervisor_lost") in world.steps()
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    assert world.run("wait").code == 0
    assert len(conversations(world)) == 1
    assert world.pairs() == (2, 2)
    assert world.loop()["llmCalls"] == 2


def test_a_supervisor_killed_in_running(world: World) -> None:
    world.start(["hang", decide(DONE)])
    world.until_event("assistant.turn_start")
    pid = world.supervisor()
    [agent] = world.agents(pid)
    world.kill(pid)
    world.until_over(agent)  # its input has ended: no orphan goes on by itself
    found = world.json("status")["loop"]
    assert (found["state"], found["pauseReason"], found["iterationCount"]) == ("paused", "supervisor_lost", 1)
    lost = found["lost"]
    assert (lost["iteration"], lost["delivery"], lost["decision"]) == (1, "accepted", None)
    assert "the agent was working on iteration 1, which is not repeated" in squeezed(world.ok("status").out)
    assert world.run("wait").code == 17
    world.ok("resume")
    assert world.run("wait").code == 0
    ended = world.loop()
    assert ended["lost"] is None
    assert (ended["iterationCount"], ended["llmCalls"], ended["protocolRetryCount"]) == (2, 2, 0)
    assert world.pairs() == (2, 2)
    assert len(conversations(world)) == 1
    assert len(world.said("loop")) == 2


@pytest.mark.parametrize(("args", "state", "reason"), [(DONE, "completed", None), (BLOCK, "paused", "blocked")])
def test_an_accepted_decision_survives_the_supervisor(
    world: World, args: dict[str, str], state: str, reason: str | None
) -> None:
    world.configure(f'on_attention = "{world.hook("")}"')
    world.start([decide(args, linger_for=world.gate("never"))])
    world.wait_for(lambda: world.peek()["loop"]["lastDecision"], "the accepted decision")
    world.kill(world.supervisor())
    found = world.loop()
    assert (found["state"], found["pauseReason"]) == (state, reason)
    assert world.run("wait").code == (0 if state == "completed" else 11)
    world.ok("close")  # the next open records it, with its one event
    [event] = world.wait_for(world.received, "the hook")
    assert event["summary"] == args["summary"]
    assert event["endedAt"] == found["lastDecision"]["at"]
    world.ok("close")
    assert len(world.events("loop.attention")) == 1
    assert world.pairs() == (1, 1)
    assert world.loop()["llmCalls"] == 1


def test_an_accepted_continue_keeps_its_wake_over_the_supervisors_death(world: World) -> None:
    world.start([decide(ON, linger_for=world.gate("never")), decide(DONE)], *QUICK)
    world.wait_for(lambda: world.peek()["loop"]["lastDecision"], "the accepted decision")
    world.kill(world.supervisor())
    found = world.loop()
    assert (found["state"], found["pauseReason"]) == ("paused", "supervisor_lost")
    world.ok("resume")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 2
    assert world.pairs() == (2, 2)


def test_a_supervisor_killed_while_a_prompt_is_on_its_way(world: World) -> None:
    """The record precedes the hand-over: nobody can say whether it arrived, so it is not sent again (D-18)."""
    world.start([{**decide(ON), "accept_after": world.gate("never")}, decide(DONE)])
    world.wait_for(lambda: (world.recorded() or {}).get("prompts_sent"), "the record")
    # And in the agent's hands: one it never saw would be the first again, and never be accepted.
    world.wait_for(lambda: b'"kind": "step"' in (world.folder() / "demo.jsonl").read_bytes(), "the prompt")
    world.kill(world.supervisor())
    found = world.loop()
    assert (found["state"], found["pauseReason"], found["iterationCount"]) == ("paused", "supervisor_lost", 1)
    assert found["lost"]["delivery"] == "sent"
    assert "it may have arrived, and is not sent again" in squeezed(world.ok("status").out)
    world.ok("resume")
    assert world.run("wait").code == 0
    ended = world.loop()
    assert (ended["iterationCount"], ended["promptsSent"]) == (2, 2)
    assert [text.split("\n")[2] for text in world.said("loop")] == ["Iteration: 2 of 50"]


def test_the_newest_record_was_torn_by_the_power_loss(world: World) -> None:
    """The one before it counts, nothing of the rest is hidden, and the next record is whole."""
    steps = Steps(world)
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting")
    pid = world.supervisor()
    world.kill(pid)
    path = world.folder() / "journal.jsonl"
    torn = path.read_bytes()[:-40]
    path.write_bytes(torn)
    status = world.json("status")
    assert "1 line was skipped at the end of the journal" in status["session"]["problem"]
    assert (status["loop"]["state"], status["loop"]["pauseReason"]) == ("paused", "supervisor_lost")
    assert (status["loop"]["iterationCount"], status["loop"]["lost"]["decision"]) == (1, "continue")
    assert path.read_bytes() == torn  # looking mends nothing
    world.ok("resume")
    steps.set(2 * HOUR)
    assert world.run("wait").code == 0
    assert [text.split("\n")[2] for text in world.said("loop")] == ["Iteration: 1 of 50", "Iteration: 2 of 50"]
    assert world.pairs() == (2, 2)


def test_of_many_who_bring_it_back_at_once_one_does_and_all_are_told(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting")
    world.kill(world.supervisor())
    racing = [world.spawn("resume") for _ in range(5)]
    ended = [world.finish(each, timeout=120) for each in racing]
    assert {one.code for one in ended} <= {0, 4}, ended
    assert [one.code for one in ended].count(0) >= 1
    assert not any("owned by" in one.err for one in ended), ended
    assert world.loop()["state"] == "waiting"
    assert world.steps().count(("paused", "supervisor_lost")) == 1
    world.wait_for(
        lambda: sum("supervise" in words(process) for process in world.processes()) == 1, "the losers' end"
    )


@pytest.mark.parametrize(
    ("death", "told"), [({}, "signal 9 (SIGKILL)"), ({"exit": 3}, "exit status 3")], ids=["killed", "exit"]
)
def test_an_agent_that_dies_in_an_iteration(world: World, death: dict[str, int], told: str) -> None:
    world.configure(f'on_attention = "{world.hook("")}"')
    world.start([{"do": "crash", **death}, decide(DONE)])
    assert world.run("wait").code == 14
    found = world.loop()
    assert told in found["lastAttention"]["evidence"]["text"]
    assert found["lastAttention"]["evidence"]["source"] == "extension"
    assert world.pairs() == (1, 1)
    assert found["llmCalls"] == 1
    world.wait_for(world.received, "the first hook")
    world.ok("resume")
    assert world.run("wait").code == 0
    statuses = [
        event["status"] for event in world.wait_for(lambda: world.received()[1:] and world.received(), "hook")
    ]
    assert statuses == ["protocol_error", "completed"]
    assert len(conversations(world)) == 1


def test_an_agent_killed_from_outside_between_iterations_comes_back_at_the_wake(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting")
    pid = world.supervisor()
    [agent] = world.agents(pid)
    world.kill(agent)
    world.until_event("session.error", kind="agent_lost")
    assert world.peek()["loop"]["state"] == "waiting"
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    assert world.run("wait").code == 0
    assert [event["data"].get("kind") for event in world.events("session.error")] == ["agent_lost"]
    assert len(conversations(world)) == 1
    assert world.supervisor() == pid


def test_restarts_that_fail_back_off_and_then_say_why(world: World) -> None:
    broken = {"exit": 7, "stderr": "no licence on this machine"}
    world.start({"start": [{}, broken], "prompts": [decide(ON)]})
    world.until(state="waiting")
    [agent] = world.agents(world.supervisor())
    world.kill(agent)
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    status = world.until(state="paused", timeout=90)
    assert status["loop"]["pauseReason"] == "protocol_error"
    assert "no licence on this machine" in status["loop"]["lastAttention"]["evidence"]["text"]
    failed = [record for record in world.journal() if record["event"]["type"] == "agent_start_failed"]
    assert len(failed) == 6
    instants = [record["event"]["mono"] for record in failed]
    retries = [record["loop"]["phase"]["retry"]["mono"] for record in failed[:-1]]
    assert [retry - at for at, retry in zip(instants, retries, strict=False)] == [1000, 2000, 4000, 8000, 16_000]
    assert all(retry <= following for retry, following in zip(retries, instants[1:], strict=True))
    assert status["loop"]["iterationCount"] == 1  # none was handed over, none counts


def test_a_handover_that_never_starts_is_tried_again_and_counts_once(world: World) -> None:
    world.start([{"do": "refuse", "reason": "not now"}, {"do": "refuse", "reason": "not now"}, decide(DONE)])
    assert world.run("wait").code == 0
    found = world.loop()
    assert (found["iterationCount"], found["promptsSent"]) == (1, 1)
    assert len(world.said("loop")) == 1


def test_a_missing_or_broken_agent_leaves_nothing(world: World) -> None:
    missing = world.json("start", "--every", "1h", "--agent", "nobody", "x", code=6)
    assert missing["error"]["kind"] == "agent_unable"
    script = world.script({"start": [{"exit": 9, "stderr": "I cannot run here"}]})
    argv = ("--detach", "--every", "1h", "--agent", "demo", "x", "--", "--script", str(script))
    broken = world.json("start", *argv, code=6)
    assert "I cannot run here" in broken["error"]["message"]
    assert world.json("status", code=3)["error"]["kind"] == "not_found"
    assert world.processes() == []
    left = [name for name in os.listdir(world.home / "sessions") if name != ".lock"]
    assert left == []
    assert os.listdir(world.home / "run") == []


def test_a_supervisor_that_does_not_answer(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    pid = world.supervisor()
    records = world.journal()
    world.halt(pid)
    try:
        found = world.run("status", "--json")
        assert found.code == 5
        assert found.obj["session"]["supervisor"] == {"alive": True, "responding": False, "pid": pid}
        assert found.obj["loop"]["state"] == "waiting"
        for verb in ("pause", "stop", "resume", "attach"):
            assert world.json(verb, code=5)["error"]["kind"] == "supervisor_gone", verb
        assert world.run("ls").code == 0
    finally:
        world.kill(pid, signal.SIGCONT)
    assert world.json("status")["loop"]["state"] == "waiting"
    assert world.journal() == records


def far_tool(world: World, ignores: str = "") -> tuple[str, ...]:
    """The agent's arguments for a tool in a session of its own; it notes its pid and ignores these signals."""
    tool = world.root / "tool"
    pid = world.root / "tool.pid"
    trap = f"trap '' {ignores}; " if ignores else ""
    body = f"{trap}echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 1; done"
    tool.write_text(f"#!/bin/sh\nsetsid sh -c {shlex.quote(body)}\n")
    tool.chmod(0o700)
    return ("--run", str(tool))


def the_tool(world: World) -> int:
    return int((world.root / "tool.pid").read_text())


needs_setsid = pytest.mark.skipif(
    shutil.which("setsid") is None, reason="the tool leaves its session by setsid(1), which macOS does not have"
)


@needs_setsid
def test_a_tool_in_a_session_of_its_own_ends_with_the_session(world: World) -> None:
    """The abort at the close takes its parent away first: nothing but memory tells then whose it was."""
    world.ok("start", *QUICK, "--agent", "demo", "--detach", "x", "--", *far_tool(world, "TERM HUP INT"))
    world.wait_for((world.root / "tool.pid").exists, "the tool")
    world.ok("close")
    world.until_over(the_tool(world))


@needs_setsid
@pytest.mark.parametrize("verb", ["resume", "close", "stop"])
def test_a_tool_that_outlived_its_killed_supervisor_is_ended_by_whoever_comes_next(world: World, verb: str) -> None:
    world.ok("start", *SLOW, "--agent", "demo", "--detach", "x", "--", *far_tool(world))
    world.wait_for((world.root / "tool.pid").exists, "the tool")
    supervisor, tool = world.supervisor(), the_tool(world)
    (agent,) = world.agents(supervisor)
    world.kill(supervisor)
    world.until_over(agent)
    assert psutil.Process(tool).is_running()
    (world.root / "tool").write_text("#!/bin/sh\ntrue\n")
    world.ok(verb)
    world.until_over(tool)


@needs_setsid
def test_a_session_that_an_agent_starts_does_not_end_with_it(world: World) -> None:
    nest = ("env", "-u", "LOOPSUP_SESSION", *LOOPSUP, "start", "--detach", "--agent", "demo", *SLOW)
    tool = world.root / "tool"
    tool.write_text(f"#!/bin/sh\n{shlex.join((*nest, '--session', 'inner', 'x', '--', '--run', 'false'))}\n")
    tool.chmod(0o700)
    world.ok("start", *SLOW, "--agent", "demo", "--detach", "x", "--", "--run", str(tool))
    world.until(state="completed")
    world.ok("close", "--session", "project")
    assert world.status("inner")["session"]["supervisor"]["alive"]
