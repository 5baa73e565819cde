"""End to end with a terminal program: the loop, and a person who attaches to its screen, types, and leaves."""

from __future__ import annotations

import re
import signal

import pytest

from tests.support.pty_world import begin, decide, kept, person, program, told_of_a_draft
from tests.support.world import QUICK, SLOW, World

pytestmark = [pytest.mark.slow]

ON = decide("continue", "red")
DONE = decide("complete", "green", "make test: 3 passed")


def test_from_start_to_complete_in_one_conversation(world: World) -> None:
    pid = begin(world, [[{"say": "red still"}, ON], [DONE]], *QUICK)["session"]["supervisor"]["pid"]
    done = world.run("wait", "--json")
    assert (done.code, done.obj["loop"]["state"]) == (0, "completed")
    loop = done.obj["loop"]
    assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"], loop["protocolRetryCount"]) == (2, 2, 2, 0)
    assert loop["lastDecision"]["evidence"] == "make test: 3 passed"
    assert world.pairs() == (2, 2)
    assert kept(world, "user") == world.said("loop")
    assert all("loopsup control continue|complete|fail|block" in text for text in world.said("loop"))
    assert [text.startswith("[0] loop_control recorded") for text in kept(world, "tool")] == [True, True]
    assert world.json("close")["session"]["supervisor"]["alive"] is False
    world.until_over(pid)
    world.until_deserted()


def test_without_a_decision_it_is_reminded_how_to_make_one(world: World) -> None:
    bad = decide("complete", "green", " ")
    begin(world, [[bad], [DONE]])
    assert world.run("wait").code == 0
    assert world.loop()["protocolRetryCount"] == 1
    assert kept(world, "tool")[0].startswith("[4] loopsup: loop_control was refused: evidence is missing or blank")
    (reminder,) = world.said("protocol")
    assert reminder.endswith("loopsup control continue|complete|fail|block --summary '...' --evidence '...'")


def test_a_person_looks_types_and_leaves(world: World) -> None:
    """A draft keeps the next message waiting, and that is said; once it is gone the message goes out, alone."""
    begin(world, [[{"say": "first look"}, ON], [DONE]], *SLOW)
    world.until(state="waiting")
    with person(world) as somebody:
        somebody.sees("\x1b[?1049h")
        somebody.sees("Ctrl-] leaves it")
        somebody.sees("first look")
        assert world.peek()["session"]["clients"] == 1
        somebody.types("half a thou")
        somebody.sees("half a thou")
        world.ask("say", text="a message")
        world.wait_for(lambda: told_of_a_draft(world), "the notice")
        assert kept(world, "user") == world.said("loop")
        somebody.types("\x15")
        world.until_event("user.message", origin="user")
        assert kept(world, "user")[1:] == ["a message"]
        assert somebody.leaves() == 0
        assert b"session 'project' goes on" in somebody.all
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "the person to be gone")
    assert world.peek()["loop"]["state"] == "waiting"


def test_two_people_share_a_screen_and_the_session_closes(world: World) -> None:
    begin(world, [[ON]], *SLOW)
    world.until(state="waiting")
    with person(world) as one, person(world, rows=20, cols=70) as other:
        one.sees("fake tui")
        other.sees("fake tui")
        one.types("hello")
        other.sees("hello")
        world.ok("close")
        assert [one.ended(), other.ended()] == [0, 0]
        assert b"the session was closed (command)" in one.all


def test_a_question_is_shown_in_the_status_and_answered_at_the_terminal(world: World) -> None:
    begin(world, [[{"menu": "Delete everything?"}, DONE]], *SLOW)
    question = world.wait_for(lambda: (world.peek()["loop"] or {}).get("question"), "the question")
    assert (question["kind"], "Delete everything?" in question["text"]) == ("dialog", True)
    assert world.peek()["loop"]["state"] == "running"
    assert world.events("loop.attention") == []
    refused = world.run("answer", "allow")
    assert (refused.code, "answer it there: `loopsup attach`" in refused.err) == (4, True)
    assert kept(world, "key") == []
    with person(world) as somebody:
        somebody.sees("Delete everything?")
        somebody.types("1")
        assert world.run("wait").code == 0
        somebody.leaves()
    assert kept(world, "key") == ["b'1'"]
    (over,) = world.events("permission.completed")
    assert (over["data"]["outcome"], over["data"]["by"]) == ("answered in its terminal", "agent")


def test_a_question_nobody_answers_ends_the_program_and_pauses_the_loop(world: World) -> None:
    world.configure('[permissions]\ntimeout = "2s"\n')
    begin(world, [[{"menu": "Delete everything?"}, DONE]], *SLOW)
    assert world.run("wait").code == 14
    assert kept(world, "key") == []
    (attention,) = world.events("loop.attention")
    evidence = attention["data"]["evidence"]["text"]
    assert "nobody answered the question on its screen" in evidence
    assert "exit status 0" in evidence


def test_the_program_is_killed_in_an_iteration_and_between_two(world: World) -> None:
    begin(world, [[ON], [{"hang": True}], [DONE]], *SLOW)
    world.until(state="waiting")
    first = world.agent_pid()
    with person(world) as somebody:
        somebody.sees("fake tui")
        world.kill(first, signal.SIGKILL)
        somebody.sees("the program is not running now")
        world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
        world.until(state="running", iterationCount=2)
        somebody.sees("◎ working")
        world.until_event("assistant.turn_start", 2)
        second = world.agent_pid()
        assert second != first
        world.kill(second, signal.SIGKILL)
        assert world.run("wait").code == 14
        somebody.leaves()
    (attention,) = world.events("loop.attention")
    assert "signal 9 (SIGKILL)" in attention["data"]["evidence"]["text"]
    assert [event["type"] for event in world.events("session.start", "session.resume")] == [
        "session.start",
        "session.resume",
    ]
    assert len(kept(world, "user")) == 2


def test_the_supervisor_is_killed_before_a_persons_eyes(world: World) -> None:
    started = begin(world, [[{"hang": True}]], *SLOW)
    world.until_event("assistant.turn_start")
    agent = world.agent_pid()
    with person(world) as somebody:
        somebody.sees("◎ working")
        world.kill(int(started["session"]["supervisor"]["pid"]))
        assert somebody.ended() == 5
        assert b"`loopsup resume --session project` goes on" in b" ".join(somebody.all.split())
    world.until_over(agent)
    assert world.loop()["pauseReason"] == "supervisor_lost"
    world.until_deserted()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_person_who_is_ended_by_a_signal_gets_the_terminal_back(world: World, number: signal.Signals) -> None:
    begin(world, [[ON]], *SLOW)
    world.until(state="waiting")
    with person(world) as somebody:
        somebody.sees("fake tui")
        somebody.child.kill(number)
        assert somebody.ended() == -number
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "the person to be gone")
    assert world.peek()["loop"]["state"] == "waiting"


def test_nothing_that_acts_on_a_terminal_gets_into_the_files(world: World) -> None:
    odd = "\x1b[31mred\x07 \x9b2J"
    begin(world, [[{"say": odd}, DONE]])
    assert world.run("wait").code == 0
    written = [path.read_text() for path in world.folder().resolve().iterdir() if path.is_file()]
    assert all(re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\u001b|\\u009b", text) is None for text in written)


def test_what_the_command_line_lacks_is_told_before_anything_is_made(world: World) -> None:
    bare = world.run("start", "--agent", "pty", *SLOW, "obj")
    assert (bare.code, "needs the command line of a program" in bare.err) == (2, True)
    gone = world.run("start", "--agent", "pty", "--detach", *SLOW, "obj", "--", "/nonexistent/program")
    assert (gone.code, "/nonexistent/program" in gone.err) == (6, True)
    asks = program(world, [[DONE]], question="Do you trust the authors?")
    refused = world.run("start", "--agent", "pty", "--detach", *SLOW, "obj", "--", *asks)
    assert (refused.code, "Do you trust the authors?" in refused.err) == (6, True)
    assert list((world.home / "sessions").glob("[!.]*")) == []
    assert world.processes() == []
