"""End to end with the real OpenCode (`opencode acp`) before a scripted model on loopback."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.model_server import ModelServer, Reply, user_texts
from tests.support.opencode_env import bash, decision, equip, hidden_calls, offered, turns
from tests.support.world import QUICK, SLOW, Like, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.opencode,
    pytest.mark.xdist_group("opencode"),
    pytest.mark.timeout(600),
]  # several starts of a CLI, 15 s each on a busy machine

STARTS_S = 150.0  # its very first start makes a data base and takes half a minute on a loaded machine
ID = Like(lambda it: isinstance(it, str) and it, "id")


def start(world: World, *options: str, code: int = 0) -> Any:
    rhythm = () if "--every" in options else SLOW
    words = ("--agent", "opencode", "--detach", *rhythm, *options, "keep the tests green")
    return world.json("start", *words, code=code, timeout=STARTS_S)


def test_two_iterations_in_one_conversation(world: World) -> None:
    """The golden transcript of an iteration, and what the model saw."""
    script = [
        Reply("Let me see.", tools=[bash("echo red")]),
        Reply(tools=[decision("continue", "red", "echo red")]),
        Reply("I wait."),
        Reply(tools=[("loopsup_loop_control", {"decision": "complete", "summary": "green", "evidence": " "})]),
        Reply(tools=[decision("complete", "green", "make test: 3 passed")]),
        Reply("Done."),
    ]
    with ModelServer(script, rule=hidden_calls) as server:
        equip(world, server)
        start(world, *QUICK)
        assert world.run("wait", timeout=STARTS_S).code == 0
        bodies = turns(server)
    loop = world.loop()
    assert (loop["state"], loop["iterationCount"], loop["protocolRetryCount"]) == ("completed", 2, 0)
    assert (loop["promptsSent"], loop["llmCalls"]) == (2, 2)  # a turn is a prompt here, and the adapter says so
    assert loop["lastDecision"]["evidence"] == "make test: 3 passed"
    assert "loopsup_loop_control" in offered(bodies[0])
    assert user_texts(bodies[-1]) == world.said("loop")
    results = [str(message["content"]) for message in bodies[-1]["messages"] if message["role"] == "tool"]
    assert [text for text in results if "evidence is missing or blank" in text]
    found = [(event["type"], event["data"]) for event in world.events() if event.get("iteration") == 1]
    tool = {"toolCallId": ID, "toolName": "bash"}
    ours = {"toolCallId": ID, "toolName": "loopsup_loop_control"}
    said = {"decision": "continue", "summary": "red", "evidence": "echo red"}
    assert [item for item in found if not item[0].startswith("loop.")] == [
        ("user.message", {"messageId": ID, "origin": "loop", "text": world.said("loop")[0]}),
        ("assistant.turn_start", {"turnId": "1"}),
        ("assistant.message", {"turnId": "1", "text": "Let me see.", "toolRequests": []}),
        ("tool.execution_start", {**tool, "arguments": Like(lambda it: it["command"] == "echo red", "bash")}),
        ("tool.execution_complete", {**tool, "success": True, "result": "red\n"}),
        ("tool.execution_start", {**ours, "arguments": said}),
        ("tool.execution_complete", {**ours, "success": True, "result": Like(lambda it: "recorded" in it or it, "")}),
        ("assistant.message", {"turnId": "1", "text": "I wait.", "toolRequests": []}),
        ("assistant.turn_end", {"turnId": "1", "stopReason": "stop", "usage": {"costUsd": 0.00036}}),
    ]


def test_the_conversation_goes_on_after_each_kind_of_kill(world: World) -> None:
    """OpenCode between iterations, with a close; then the supervisor in mid-turn."""
    script = [
        Reply(tools=[decision("continue", "one")]),
        Reply("I wait."),
        Reply("Half an answer", hang="stream"),
        Reply(tools=[decision("complete", "three")]),
        Reply("Done."),
    ]
    with ModelServer(script, rule=hidden_calls) as server:
        equip(world, server)
        first = start(world, *SLOW)
        world.until(state="waiting", iterationCount=1, timeout=STARTS_S)
        world.kill(world.agent_pid())
        world.until_event("session.error", kind="agent_lost")
        world.ok("close")
        world.ok("resume", timeout=STARTS_S)
        assert world.loop()["nextDueAt"] is not None
        world.json("update", *QUICK)  # the wake it had is an hour away, and stays so over a resume
        world.wait_for(lambda: len(turns(server)) == 3, "the second iteration", STARTS_S)
        world.kill(world.supervisor())
        world.wait_for(lambda: server.hangups == 1, "opencode to end with its supervisor", STARTS_S)
        assert world.loop()["pauseReason"] == "supervisor_lost"
        world.ok("resume", timeout=STARTS_S)
        assert world.run("wait", timeout=STARTS_S).code == 0
        last = turns(server)[-1]
    assert user_texts(last) == world.said("loop")
    assert len(world.said("loop")) == 3
    assert world.loop()["lastDecision"]["summary"] == "three"
    assert world.status()["session"]["agentSessionId"] == first["session"]["agentSessionId"]
    (lost,) = world.events("session.error")
    assert lost["data"]["message"].startswith("the agent ended: signal 9 (SIGKILL)")


def test_a_model_that_hangs_is_aborted_and_the_session_goes_on(world: World) -> None:
    script = [Reply(hang="headers"), Reply(tools=[decision("complete")]), Reply("Done.")]
    with ModelServer(script, rule=hidden_calls) as server:
        equip(world, server)
        start(world, *SLOW)
        world.wait_for(lambda: turns(server), "the model request", STARTS_S)
        world.ok("abort")
        assert world.loop()["pauseReason"] == "interrupted"
        server.wait_for_hangups(1)
        world.ok("resume", timeout=STARTS_S)
        assert world.run("wait", timeout=STARTS_S).code == 0
    assert world.pairs() == (2, 2)


def test_its_question_reaches_the_person_and_a_lost_conversation_is_not_replaced(world: World) -> None:
    script = [Reply(tools=[bash("rm -rf build")]), Reply(tools=[decision("complete")]), Reply("Done.")]
    with ModelServer(script, rule=hidden_calls) as server:
        equip(world, server, permission={"bash": "ask", "loopsup_loop_control": "ask"})
        start(world, *SLOW)
        question = world.wait_for(lambda: (world.peek()["loop"] or {}).get("question"), "the question", STARTS_S)
        assert (question["kind"], question["tool"]) == ("permission", "execute")
        assert "rm -rf build" in question["text"]
        world.ok("answer", "allow")
        assert world.run("wait", timeout=STARTS_S).code == 0
        assert [event["data"]["outcome"] for event in world.events("permission.completed")] == ["allowed"]
        world.ok("close")
        for path in (world.root / "user" / ".local" / "share" / "opencode").glob("opencode.db*"):
            path.unlink()
        world.run("start", "--session", "project", "--detach", *SLOW, "again", timeout=STARTS_S)
        said = world.wait_for(lambda: world.events("session.error"), "the failed start", STARTS_S)[0]["data"]
        assert said["kind"] == "agent_start"
        assert "opencode refused session/resume" in said["message"]
        assert len(turns(server)) == 3
