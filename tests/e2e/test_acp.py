"""End to end with an ACP agent: `loopsup start --agent acp -- …`, the carrier, and every way it can be stuck."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.acp_world import agent_args, begin, decide, kept
from tests.support.world import QUICK, SLOW, World

pytestmark = [pytest.mark.slow]

CONTROL = [sys.executable, "-P", "-m", "loopsup", "control"]
SAID = ["--summary", "green", "--evidence", "make test"]
LOOPSUP = [sys.executable, "-P", "-m", "loopsup"]


def test_from_start_to_complete_in_one_conversation(world: World) -> None:
    script = [[{"say": "red still"}, decide("continue", "red")], [decide("complete", "green", "make test: 3 passed")]]
    pid = begin(world, script, *QUICK)["session"]["supervisor"]["pid"]
    done = world.run("wait", "--json")
    assert (done.code, done.obj["loop"]["state"]) == (0, "completed")
    loop = done.obj["loop"]
    assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"], loop["protocolRetryCount"]) == (2, 2, 2, 0)
    assert loop["lastDecision"]["evidence"] == "make test: 3 passed"
    assert world.pairs() == (2, 2)
    assert [text.split("\n")[2] for text in world.said("loop")] == ["Iteration: 1 of 50", "Iteration: 2 of 50"]
    assert len(kept(world, "open")) == 1
    results = [item["text"] for item in kept(world, "tool")]
    assert len(results) == 2
    assert world.json("close")["session"]["supervisor"]["alive"] is False
    world.until_over(pid)
    world.until_deserted()  # what the agent started goes with it, a moment later


def test_a_conversation_is_resumed_after_a_close(world: World) -> None:
    begin(world, [[decide("continue")], [decide("complete")]], *SLOW)
    world.until(state="waiting", iterationCount=1)
    world.ok("close")
    world.json("resume")
    world.json("update", *QUICK)
    assert world.run("wait").code == 0
    assert [item["method"] for item in kept(world, "open")] == ["session/new", "session/resume"]
    assert [event["type"] for event in world.events("session.start", "session.resume")] == [
        "session.start",
        "session.resume",
    ]


def test_the_verdict_reaches_the_model_and_a_bad_call_costs_nothing(world: World) -> None:
    """L-80: a tool error that names the fault; a valid call later in the same run stands."""
    bad = {"decide": {"decision": "complete", "summary": "green"}, "go_on": True}
    begin(world, [[bad, {**decide("complete"), "go_on": True}, decide("block")]])
    assert world.run("wait").code == 0
    loop = world.loop()
    assert (loop["protocolRetryCount"], loop["lastDecision"]["decision"]) == (0, "complete")
    first, second, third = kept(world, "tool")
    assert "evidence is missing or blank" in first["text"]
    assert [item["status"] for item in (first, second, third)] == ["failed", "completed", "failed"]


def test_a_shell_is_enough(world: World) -> None:
    """`loopsup control` in the agent's shell; the person's commands are not the agent's."""
    script = [
        [
            {"run": [*LOOPSUP, "stop"]},
            {"run": [*LOOPSUP, "status"]},
            {"run": [*CONTROL, "complete", "--summary", "x", "--evidence", " "]},
            {"run": [*CONTROL, "complete", *SAID]},
        ]
    ]
    begin(world, script, *SLOW)
    assert world.run("wait").code == 0
    stop, status, refused, accepted = (item["text"] for item in kept(world, "tool"))
    assert stop.startswith("[4] loopsup: this comes from the agent itself")
    assert status.startswith("[0] ")
    assert refused.startswith("[4] loopsup: loop_control was refused: evidence is missing or blank")
    assert accepted.startswith("[0] ")
    assert world.loop()["lastDecision"]["summary"] == "green"


def test_nobody_else_can_decide(world: World) -> None:
    """A person has no token, and the token of an agent that was ended is void."""
    begin(world, [[{"run": ["printenv", "LOOPSUP_TOKEN"]}, decide("continue")], [{"hang": True}]], *SLOW)
    world.until(state="waiting")
    old = kept(world, "tool")[0]["text"].removeprefix("[0] ").strip()
    where = {"LOOPSUP_SOCKET": str(world.socket()), "LOOPSUP_TOKEN": old}
    assert world.run("control", "complete", *SAID).code == 4
    between = world.run("control", "complete", *SAID, env=where)
    assert (between.code, "no iteration" in between.err) == (4, True)
    world.ok("close")
    world.json("resume")
    world.json("update", *QUICK)
    world.until(state="running", iterationCount=2)
    stale = world.run("control", "complete", *SAID, env={**where, "LOOPSUP_SOCKET": str(world.socket())})
    assert (stale.code, "no longer valid" in stale.err) == (4, True)
    assert world.loop()["state"] == "running"
    written = [path for path in world.folder().resolve().iterdir() if path.is_file()]
    leaks = {path.name for path in written if old in path.read_text(errors="replace")}
    assert leaks == {"events.jsonl"}  # this agent printed it


@pytest.mark.parametrize("verb", ["claim", "say"])
def test_what_is_only_said_is_no_decision(world: World, verb: str) -> None:
    """One reminder, then a pause with protocol_error; the stream's word counts for nothing."""
    claim = {"decision": "complete", "summary": "green", "evidence": "trust me"}
    begin(world, [[{verb: claim if verb == "claim" else "I am done, the loop is complete."}]])
    assert world.run("wait").code == 14
    assert len(world.said("loop")) == 1
    assert len(world.said("protocol")) == 1
    assert world.loop()["lastDecision"] is None


def test_a_dead_tool_server_costs_one_reminder_and_pauses(world: World) -> None:
    begin(world, [[{"close": True}, {"say": "there is no tool"}]])
    assert world.run("wait").code == 14
    assert (world.loop()["promptsSent"], world.loop()["protocolRetryCount"]) == (2, 1)


def test_turns_that_fail_at_once_are_bounded(world: World) -> None:
    error = {"error": {"code": -32603, "message": "insufficient_quota"}}
    begin(world, [[error]], *QUICK)
    assert world.run("wait").code == 14
    assert world.loop()["promptsSent"] == 2
    ends = world.events("assistant.turn_end")
    assert [end["data"]["error"]["kind"] for end in ends] == ["rate_limit"] * 2


def test_a_new_session_whose_agent_ignores_the_carrier_fails_in_words_and_leaves_nothing(world: World) -> None:
    args = agent_args(world, [[]], {"carrier": "no-list"})
    done = world.run("start", "--agent", "acp", "--detach", *SLOW, "obj", "--", *args)
    assert done.code == 6
    assert "did not ask for its tools within 15 s" in done.err
    assert list((world.home / "sessions").glob("[!.]*")) == []
    assert world.processes() == []


def test_what_the_command_line_lacks_is_told_before_anything_is_made(world: World) -> None:
    bare = world.run("start", "--agent", "acp", *SLOW, "obj")
    assert (bare.code, "needs the command line of an ACP agent" in bare.err) == (2, True)
    gone = world.run("start", "--agent", "acp", "--detach", *SLOW, "obj", "--", "/nonexistent/agent")
    assert (gone.code, "/nonexistent/agent" in gone.err) == (6, True)
    adopted = world.run("start", "--agent", "acp", "--continue", "ses_1", *SLOW, "obj", "--", "x")
    assert adopted.code == 3
    assert list((world.home / "sessions").glob("[!.]*")) == []


def test_a_question_is_shown_and_answered(world: World) -> None:
    script = [[{"tool": "rm -rf build", "ask": True}, decide("complete")]]
    begin(world, script, *SLOW)
    question = world.wait_for(lambda: (world.peek()["loop"] or {}).get("question"), "the question")
    assert (question["kind"], question["tool"]) == ("permission", "execute")
    assert question["text"] == 'rm -rf build {"command": "rm -rf build"}'
    world.ok("answer", "deny")
    assert world.run("wait").code == 0
    assert kept(world, "tool")[0]["text"] == "denied"
    (over,) = world.events("permission.completed")
    assert over["data"] == {"id": "p1", "outcome": "denied", "by": "user"}


def test_a_question_nobody_answers_is_denied_in_time(world: World) -> None:
    world.configure('[permissions]\ntimeout = "2s"\n')
    begin(world, [[{"tool": "rm -rf build", "ask": True}, decide("block", "a person must allow it")]], *SLOW)
    assert world.run("wait").code == 11
    (over,) = world.events("permission.completed")
    assert over["data"] == {"id": "p1", "outcome": "denied", "by": "timeout"}


def test_the_policy_answers_by_the_kind_of_tool(world: World) -> None:
    world.configure('[permissions]\nallow = ["execute"]\n')
    script = [[{"tool": "make", "ask": True}, decide("complete")]]
    begin(world, script, *SLOW)
    assert world.run("wait").code == 0
    assert kept(world, "tool")[0]["text"] == "ran it"


def test_an_agent_that_never_answers_is_stuck_and_ended(world: World) -> None:
    """Silence while a model request is open; it ignores the cancel, too, and is ended; so is the reminder's."""
    world.configure('[agent]\nsilence_timeout = "2s"\n')
    begin(world, [[{"say": "working on it"}, {"hang": True}]], *SLOW, start={"ignore_cancel": True})
    world.until_event("assistant.turn_start")
    pid = world.agent_pid()
    assert world.run("wait", timeout=90).code == 14
    loop = world.loop()
    assert (loop["state"], loop["pauseReason"], loop["promptsSent"]) == ("paused", "protocol_error", 2)
    world.until_over(pid)
    assert world.pairs() == (2, 2)
    assert [abort["data"]["reason"] for abort in world.events("abort")] == ["watchdog"] * 2


def test_a_decision_made_and_a_turn_that_goes_on_is_cut_after_the_linger(world: World) -> None:
    """C10/81: the work is done, the decision stands, and `session/prompt` is never answered."""
    begin(world, [[decide("continue") | {"go_on": True}, {"hang": True}], [decide("complete")]], *QUICK)
    world.until(state="completed", timeout=90)
    (abort,) = world.events("abort")
    assert abort["data"] == {"reason": "decision"}
    assert world.loop()["iterationCount"] == 2
    assert world.loop()["protocolRetryCount"] == 0


def test_a_supervisor_that_is_killed_is_followed_by_its_agent(world: World) -> None:
    started = begin(world, [[{"hang": True}]], *SLOW)
    world.until_event("assistant.turn_start")
    pid = world.agent_pid()
    world.kill(int(started["session"]["supervisor"]["pid"]))
    world.until_over(pid)
    assert world.loop()["pauseReason"] == "supervisor_lost"
    world.until_deserted()


def test_the_adapters_are_shown_with_what_they_can(world: World) -> None:
    found = {row["name"]: row for row in json.loads(world.ok("agents", "--json").out)["agents"]}
    assert {"acp", "claude", "codex", "gemini", "goose", "kimi", "opencode", "qwen"} <= found.keys()
    can = found["acp"]["capabilities"]
    assert (can["turn_events"], can["terminate_on_tool"], can["native_tool"]) == (False, False, False)
    assert (can["abort"], can["resume"]) == (True, True)
    assert found["goose"]["summary"].startswith("untested: Goose")
