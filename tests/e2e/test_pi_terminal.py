"""`/loop` as it is written: typed into a Pi that a person has started, with loopsup's extension."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import PiProduct, product
from tests.support.pi_terminal import person

pytestmark = [pytest.mark.pi, pytest.mark.slow]

LATER = Reply("Not yet.", [decision("continue", nextDelay="1h")])
COMPLETE = Reply(tools=[decision("complete", "all is green")])
START = "/loop start --every auto --min-delay 1s "


def test_a_loop_from_its_first_line_to_its_end() -> None:
    objective = """watch  the "CI" of PR 42; complete when it's --green"""
    with product([LATER, Reply("Hello."), COMPLETE]) as pi, person(pi) as at:
        at.ready().type("/loop status")
        at.see("there is no loop in this conversation")
        at.type("/loop start watch it")
        at.see("--every is missing")
        at.type(f"{START}--for 2h --max-iterations 9 {objective}")
        at.see("loop waiting 1/9, next ")
        loop = pi.loop()
        assert (loop["objective"], loop["forMs"], loop["minDelayMs"]) == (objective, 7_200_000, 1000)
        assert user_texts(pi.requests[0])[0].split("\n")[:2] == [
            "[loop iteration]",
            f"Objective (verbatim): {objective}",
        ]
        at.type("/loop pause")
        at.see("loop paused (user) 1/9")
        at.type("/loop update --max-iterations 7")
        at.see("loop paused (user) 1/7")
        at.type("/loop update another objective")
        at.see("the objective of a loop never changes")
        at.type("hello there")
        at.see("Hello.")
        at.type("/loop status")
        at.see("iteration 1 of 7")
        pi.act("update", "--every", "1s")  # the shell's commands mean the same loop
        at.type("/loop resume")
        at.see("loop completed: all is green")
        at.see("loop completed 2/7")
        assert "hello there" in user_texts(pi.requests[2])
        assert [data["text"] for data in pi.data("user.message") if data["origin"] == "user"] == ["hello there"]
        assert pi.balanced()
        (told,) = pi.entries("loopsup-attention")
        assert told["status"] == "completed"
        at.quit()


def test_the_agents_own_tools_cannot_speak_for_the_person() -> None:
    work = Reply(tools=[bash("loopsup pause > out.txt 2>&1; loopsup status --json >> status.json; echo done > done")])
    with product([work, LATER]) as pi, person(pi) as at:
        at.ready().type(f"{START}try to pause")
        at.see("loop waiting 1/50")
        assert "this comes from the agent itself" in pi.file_text("out.txt")
        assert json.loads(pi.file_text("status.json"))["loop"]["state"] == "running"
        at.type("/loop stop")
        at.see("loop stopped 1/50")
        assert pi.loop()["state"] == "stopped"
        at.quit()


def test_pi_is_quit_and_the_conversation_goes_on_here_and_there() -> None:
    with product([LATER, COMPLETE]) as pi:
        with person(pi) as at:
            at.ready().type(f"{START}watch")
            at.see("loop waiting 1/50")
            file = str(pi.pi_file)
            at.quit()
        pi.until(state="paused", pauseReason="session_closed")
        with person(pi, "--session", file) as at:
            at.ready()
            at.see("/loop resume goes on with it")
            at.type("/loop resume")
            at.see("loop waiting 1/50")
            owner = pi.supervisor()
            at.child.kill(signal.SIGKILL)
            pi.until(state="paused", pauseReason="session_closed")
            pi.until_over(owner)
        pi.act("update", "--every", "1s")
        pi.act("resume")  # without a terminal: the same conversation, headless
        assert pi.wait(expect=0)["iterationCount"] == 2
        assert len(user_texts(pi.requests[1])) == 2


def test_pi_is_killed_in_mid_turn() -> None:
    with product([Reply("half", hang="stream"), COMPLETE]) as pi:
        with person(pi) as at:
            at.ready().type(f"{START}watch")
            pi.server.wait_for_requests(1)
            pi.until_event("assistant.turn_start")
            at.child.kill(signal.SIGKILL)
            pi.until(state="paused")
            loop = pi.loop()
            assert (loop["pauseReason"], loop["iterationCount"], loop["llmCalls"]) == ("session_closed", 1, 1)
        pi.wait_for(pi.balanced, "the end of the turn, which is told with the end of the session")


def test_the_supervisor_is_killed_and_pi_asks_for_another() -> None:
    with product([LATER, COMPLETE]) as pi, person(pi) as at:
        at.ready().type(f"{START}watch")
        at.see("loop waiting 1/50")
        at.press("a draft")
        at.see("a draft")
        pi.kill(pi.supervisor())
        at.see("the supervisor is gone; /loop resume goes on")
        loop = pi.loop()
        assert (loop["state"], loop["pauseReason"], loop["nextDueAt"]) == ("paused", "supervisor_lost", None)
        at.press("\x03")  # the draft is still there: clear it
        at.type("/loop resume")
        at.see("loop waiting 1/50")
        pi.act("update", "--every", "1s")
        at.see("loop completed 2/50")
        at.quit()


LATE_HOST = """#!/bin/sh
[ "$1" = host ] || exec {real} "$@"
{real} host | while read -r line; do
  case $line in *'"done"'*) while [ ! -e {gate} ]; do sleep 0.05; done ;; esac
  printf '%s\\n' "$line"
done
"""


def late_host(pi: PiProduct) -> Path:
    """The last word of `loopsup host` comes when the file that is returned is there."""
    gate, shim = pi.root / "gate", pi.root / "late" / "loopsup"
    shim.parent.mkdir()
    shim.write_text(LATE_HOST.format(real=shutil.which("loopsup", path=pi.env["PATH"]), gate=gate))
    shim.chmod(0o700)
    pi.env["PATH"] = os.pathsep.join((str(shim.parent), pi.env["PATH"]))
    return gate


def test_a_late_answer_does_not_turn_the_status_line_back() -> None:
    """It says how the loop stood when it began; the link has told more meanwhile."""
    with product([LATER]) as pi:
        gate = late_host(pi)
        with person(pi) as at:
            at.ready().type(f"{START}watch")
            at.see("loop waiting 1/50")
            gate.touch()
            at.see("the loop is started")  # in one frame with what becomes of the status line
            assert at.shows("loop waiting 1/50")
            at.quit()


def test_a_supervisor_that_is_gone_before_a_late_answer_is_told() -> None:
    with product([LATER]) as pi:
        gate = late_host(pi)
        with person(pi) as at:
            at.ready().type(f"{START}watch")
            at.see("loop waiting 1/50")
            pi.kill(pi.supervisor())
            at.until_gone("loop waiting 1/50")
            gate.touch()
            at.see("the supervisor is gone; /loop resume goes on")
            at.quit()


def test_a_second_pi_on_a_driven_conversation_ends_before_its_first_prompt() -> None:
    with product([LATER]) as pi, person(pi) as at:
        at.ready().type(f"{START}watch")
        at.see("loop waiting 1/50")
        file, owner = str(pi.pi_file), pi.supervisor()
        with person(pi, "--session", file, "and a prompt") as second:
            second.until_over()
            assert f"a supervisor (process {owner}) drives this conversation" in second.text()
        assert len(pi.requests) == 1
        assert pi.act("start", "--every", "1m", "--continue", file, "x", expect=4).out == ""
        at.type("/new")  # the person goes elsewhere in the same Pi
        pi.until(state="paused", pauseReason="session_closed")
        at.see("New session started")  # before that, Pi is still on its way there
        at.quit()


def test_a_reload_is_transparent_and_escape_interrupts() -> None:
    with product([LATER, Reply("half", hang="stream")]) as pi, person(pi) as at:
        at.ready().type(f"{START}watch")
        at.see("loop waiting 1/50")
        owner = pi.supervisor()
        at.type("/reload")
        at.see("Reloaded keybindings")  # the status line went when this began
        at.see("loop waiting 1/50")
        assert pi.supervisor() == owner
        pi.act("update", "--every", "1s")
        pi.server.wait_for_requests(2)
        at.press("\x1b")
        at.see("loop paused (interrupted) 2/50")
        pi.act("close")
        at.see("the supervisor has closed the session")
        at.quit()


def test_a_supervisor_takes_the_conversation_up_while_pi_is_open() -> None:
    with product([Reply("Hello."), LATER]) as pi, person(pi) as at:
        at.ready().type("hello")
        at.see("Hello.")
        (file,) = (pi.agent_dir / "sessions").glob("*/*.jsonl")
        pi.begin("--continue", str(file))
        pi.until(state="waiting")
        at.type("and now something else")
        at.until_over()
        assert "drives this conversation" in at.text()
        assert len(pi.requests) == 2


def test_a_reminder_a_recovery_and_the_next_loop_in_the_same_pi() -> None:
    cut = Reply("Half", finish="length", output_tokens=4096)
    with product([Reply("I forgot."), cut, COMPLETE, COMPLETE]) as pi, person(pi) as at:
        at.ready().type(f"{START}first")
        at.see("loop completed 1/50")
        loop = pi.loop()
        assert (loop["protocolRetryCount"], loop["promptsSent"], loop["llmCalls"]) == (1, 2, 3)
        pi.act("close")
        at.type(f"{START}second")
        at.see("Objective (verbatim): second")
        pi.until(objective="second", state="completed")  # the status line may never change: Pi draws what changed
        assert len(user_texts(pi.requests[3])) == 3
        assert pi.balanced()
        at.quit()


def test_a_fork_pauses_the_loop_where_it_was() -> None:
    with product([Reply("Hello."), LATER]) as pi, person(pi) as at:
        at.ready().type("hello")
        at.see("Hello.")
        at.type(f"{START}watch")
        at.see("loop waiting 1/50")
        at.type("/fork")
        at.see("Fork from Message")
        at.press("\r")
        at.see("the conversation divided: its loop is paused where it was")
        at.see("Forked to new session")
        pi.until(state="paused", pauseReason="fork")
        at.press("\x03")  # what Pi put into the editor before it said so
        at.type("/loop status")
        at.see("there is no loop in this conversation")
        at.quit()
        assert pi.act("stop").code == 0
