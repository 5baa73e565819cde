"""A person speaks between and over the wakes; questions are asked and answered."""

from __future__ import annotations

import pytest

from tests.support.demo_words import BLOCK, DONE, ON, decide
from tests.support.world import INSTANT, QUICK, World

pytestmark = pytest.mark.slow


def test_a_message_between_wakes_leaves_the_rhythm_alone(world: World) -> None:
    world.start([decide(ON), {"do": "omit", "text": "Nothing new."}, decide(DONE)])
    before = world.until(state="waiting")["loop"]
    world.ok("say", "--wait", "anything new?")
    after = world.loop()
    told = ("nextDueAt", "state", "iterationCount", "promptsSent", "llmCalls", "protocolRetryCount")
    assert {key: after[key] for key in told} == {key: before[key] for key in told}
    [said] = [event for event in world.events("user.message") if event["data"]["origin"] == "user"]
    assert (said["data"]["text"], said.get("iteration")) == ("anything new?", None)
    assert world.pairs() == (2, 2)


def test_a_wake_due_during_a_users_turn_waits_and_fires_once(world: World) -> None:
    script = [decide(ON), {"do": "omit", "wait_for": world.gate("talk")}, decide(ON), decide(DONE)]
    world.start(script)
    world.until(state="waiting", iterationCount=1)
    world.ask("say", text="a long job")
    world.until_event("assistant.turn_start", 2)
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    world.until(state="queued")
    world.until(state="queued", late=True)  # several wakes' time passes: it stays one
    world.ask("update", policy={"rhythm": 3_600_000})
    assert len(world.said("loop")) == 1
    world.open("talk")
    world.until(state="waiting", iterationCount=2)
    assert [event["data"]["origin"] for event in world.events("user.message")] == ["loop", "user", "loop"]


def test_a_message_goes_before_the_wake_that_is_due(world: World) -> None:
    script = [{"do": "omit", "wait_for": world.gate("one")}, {"do": "omit", "text": "two"}, decide(DONE)]
    world.start(script, *QUICK, "--after", "1h")
    world.ask("say", text="first")
    world.until_event("assistant.turn_start")
    world.ask("say", text="second")
    world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
    world.ask("pause")
    world.ask("stop")
    world.open("one")
    world.until_event("assistant.turn_end", 2)
    world.ok("start", "--detach", "--every", "1h", "the next")
    assert world.run("wait").code == 0
    assert world.said()[:2] == ["first", "second"]


def test_say_wait_says_how_it_ended(world: World) -> None:
    world.start([decide(ON), {"do": "error", "message": "401: no"}, "hang", {"do": "crash"}, "omit"])
    world.until(state="waiting")
    failed = world.json("say", "--wait", "do it", code=1)
    assert "401: no" in failed["error"]["message"]
    late = world.json("say", "--wait", "--timeout", "3s", "and now?", code=124)
    assert late["error"]["kind"] == "timeout"
    world.until_event("assistant.turn_start", 3)
    world.ok("abort")
    assert world.loop()["state"] == "waiting"  # it was the person's turn, not the loop's
    died = world.json("say", "--wait", "again", code=1)
    assert "signal 9" in died["error"]["message"]
    world.ok("say", "--wait", "once more")
    assert world.pairs() == (5, 5)
    assert world.loop()["state"] == "waiting"
    assert world.run("say", " ").code == 2
    assert world.run("say", "two", "words").code == 2


def test_say_reopens_a_closed_session_in_the_same_conversation(world: World) -> None:
    world.start([decide(DONE), {"do": "omit", "text": "Yes."}])
    assert world.run("wait").code == 0
    world.ok("close")
    world.ok("say", "--wait", "still there?")
    assert world.loop()["state"] == "completed"
    [first, second] = world.events("session.start", "session.resume")
    assert [first["type"], second["type"]] == ["session.start", "session.resume"]
    assert first["data"]["agentSessionId"] == second["data"]["agentSessionId"]


def test_a_question_is_shown_and_allowed(world: World) -> None:
    world.start([{"do": "ask", "args": DONE}])
    asked = world.wait_for(lambda: world.json("status")["loop"]["question"], "the question")
    assert asked == {
        "id": asked["id"],
        "kind": "permission",
        "tool": "shell",
        "text": "May I run `make deploy`?",
        "since": INSTANT,
        "expiresAt": INSTANT,
    }
    assert "make deploy" in world.ok("status").out
    assert world.run("answer", "allow", "another").code == 4
    assert world.json("answer", "allow", asked["id"])["loop"]["question"] is None
    assert world.run("wait").code == 0
    [completed] = world.events("permission.completed")
    assert completed["data"] == {"id": asked["id"], "outcome": "allowed", "by": "user"}


def test_a_question_denied_by_a_person_and_one_nobody_answers(world: World) -> None:
    world.start(["ask", "ask"])
    world.wait_for(lambda: world.peek()["loop"]["question"], "the question")
    world.ok("answer", "deny")
    assert world.run("wait").code == 11
    assert "person denies" in world.loop()["lastDecision"]["evidence"]
    world.ok("close")
    world.configure('[permissions]\ntimeout = "2s"\n')  # read where the session is opened
    world.ok("resume")
    assert world.run("wait").code == 11
    assert "No person answered within 2s" in world.loop()["lastDecision"]["evidence"]
    assert [event["data"]["by"] for event in world.events("permission.completed")] == ["user", "timeout"]


def test_allow_all_asks_nobody(world: World) -> None:
    world.start([{"do": "ask", "args": DONE}], "--allow-all")
    assert world.run("wait").code == 0
    [completed] = world.events("permission.completed")
    assert (completed["data"]["outcome"], completed["data"]["by"]) == ("allowed", "policy")
    world.ok("close")


def test_the_agent_may_not_decide_for_the_person(world: World) -> None:
    probe = world.root / "probe"
    code = "import os, subprocess, sys\n"
    for name in ("pause", "status"):
        code += (
            f"ran = subprocess.run([sys.executable, '-P', '-m', 'loopsup', {name!r}, '--json'],"
            " capture_output=True, text=True)\n"
            f"open({str(world.root)!r} + '/said-{name}', 'w').write(f'{{ran.returncode}} {{ran.stdout}}')\n"
        )
    probe.write_text(code)
    argv = ("--agent", "demo", "--detach", "--every", "1h", "watch", "--")
    world.json("start", *argv, "--run", __import__("sys").executable, str(probe))
    assert world.run("wait").code == 0
    refused = (world.root / "said-pause").read_text()
    assert refused.startswith("4 ")
    assert "only a person" in refused
    assert (world.root / "said-status").read_text().startswith("0 ")
    assert "pause" not in [record["event"]["type"] for record in world.journal()]


def test_nothing_an_agent_says_is_too_long_to_follow(world: World) -> None:
    long = "A" * 10_000_000
    objective = world.root / "objective"
    objective.write_bytes(b"a" + b"\x01" * (1024 * 1024 - 1))  # six times that in JSON, and twice in a status
    blocked = decide({**BLOCK, "summary": "\x01" * 60_000, "evidence": "B" * 60_000})
    script = world.script(
        [{"do": "omit", "text": long}, blocked, {"do": "omit", "text": long}, {"do": "error", "message": long}]
    )
    agent = ("--agent", "demo", "--objective-file", str(objective), "--", "--script", str(script))
    followed = world.run("start", *QUICK, *agent)
    assert followed.code == 11, followed.err
    assert world.loop()["pauseReason"] == "blocked"
    assert "more characters" in world.ok("say", "--wait", "tell me all").out
    assert "more characters" in world.json("say", "--wait", "and fail", code=1)["error"]["message"]
    assert world.run("wait").code == 11
