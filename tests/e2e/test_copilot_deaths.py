"""Killed agents, killed supervisors, closed sessions: on the real Copilot, nothing lies and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.copilot_env import shell
from tests.support.copilot_product import CopilotProduct, product
from tests.support.model_server import Reply, decision

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
HANGING = Reply("half", hang="stream")


def kept(it: CopilotProduct, words: str) -> None:
    """Wait until Copilot has written this answer down; it does that a moment after it has told us of it."""
    file = Path(it.status()["session"]["file"])
    it.wait_for(lambda: words in file.read_text(), f"{words} in {file}")


def test_an_agent_killed_in_mid_turn_pauses_the_loop_and_resume_brings_it_back() -> None:
    with product([HANGING, COMPLETE]) as it:
        it.begin()
        it.server.wait_for_requests(1)
        it.until_event("assistant.turn_start")
        it.kill(it.the_copilot().pid)
        loop = it.wait(expect=14)
        assert (loop["pauseReason"], loop["iterationCount"], loop["llmCalls"]) == ("protocol_error", 1, 1)
        evidence = loop["lastAttention"]["evidence"]["text"]
        assert evidence.startswith("The agent ended during iteration 1: signal 9 (SIGKILL)")
        (error,) = it.data("session.error")
        assert error["kind"] == "agent_lost"
        assert it.balanced()
        it.act("resume")
        loop = it.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        # What Copilot had written of the first message when it was killed is its own affair; the second is there.
        assert [text.split("\n")[2] for text in it.heard()][-1] == "Iteration: 2 of 50"
        assert it.balanced()


def test_an_agent_killed_between_iterations_is_brought_back_for_the_next_wake() -> None:
    with product([Reply("FIRST", [decision("continue", nextDelay="1h")]), COMPLETE]) as it:
        it.begin()
        it.until(state="waiting")
        kept(it, "FIRST")
        it.kill(it.the_copilot().pid)
        it.until_event("session.error")
        assert it.loop()["state"] == "waiting"
        it.act("update", "--every", "1s")
        loop = it.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        assert "FIRST" in json.dumps(it.requests[1]["messages"])
        assert len(it.data("session.resume")) == 1


def test_a_killed_supervisor_takes_copilot_along_and_status_tells_the_truth() -> None:
    with product([HANGING, COMPLETE]) as it:
        it.begin()
        it.until_event("assistant.turn_start")  # the request may be seen before the supervisor hears of it
        agent, owner = it.the_copilot(), it.supervisor()
        it.server.wait_for_requests(1)
        it.kill(owner)
        it.until_over(agent.pid)
        status = it.status()
        assert status["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}
        assert (status["loop"]["state"], status["loop"]["pauseReason"]) == ("paused", "supervisor_lost")
        it.act("resume")
        loop = it.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        assert len(it.heard()) == 2
        assert it.balanced()


def test_an_orphan_is_no_second_writer() -> None:
    """The supervisor is killed and the session reopened at once: Copilot itself would let two drive it."""
    with product([HANGING, COMPLETE]) as it:
        it.begin()
        it.server.wait_for_requests(1)
        agent, owner = it.the_copilot(), it.supervisor()
        it.halt(agent.pid)
        it.kill(owner)
        it.act("resume")
        assert it.wait(expect=0)["iterationCount"] == 2
        assert agent.pid not in {process.pid for process in it.processes()}


def test_everything_killed_at_once_resumes_in_the_same_conversation() -> None:
    """Power failure."""
    with product([Reply("BEFORE", [decision("continue", nextDelay="1s")]), HANGING, COMPLETE]) as it:
        it.begin()
        it.server.wait_for_requests(2)
        it.until_event("assistant.turn_start", 2)
        kept(it, "BEFORE")
        owner, agent = it.supervisor(), it.the_copilot().pid
        for pid in (owner, agent):
            with contextlib.suppress(ProcessLookupError):  # it may have seen the end of the other one
                os.kill(pid, signal.SIGKILL)
        it.until_over(owner)
        it.until_over(agent)
        assert it.loop()["pauseReason"] == "supervisor_lost"
        it.act("resume")
        loop = it.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (3, 3, 3)
        assert "BEFORE" in json.dumps(it.requests[2]["messages"])
        assert it.balanced()


def test_close_in_mid_turn_pauses_and_leaves_no_process() -> None:
    with product([Reply(tools=[shell("echo $$ > pid; sleep 300")]), COMPLETE]) as it:
        it.begin("--allow-all")
        it.file_text("pid")
        it.act("close")
        it.until_deserted()
        loop = it.wait(expect=17)
        assert (loop["pauseReason"], loop["llmCalls"]) == ("session_closed", 1)
        assert it.balanced()
        it.act("resume")
        assert it.wait(expect=0)["iterationCount"] == 2


def test_a_killed_copilot_takes_its_shell_along() -> None:
    with product([Reply(tools=[shell("echo $$ > pid; sleep 300")]), COMPLETE]) as it:
        it.begin("--allow-all")
        tool = int(it.file_text("pid"))
        it.kill(it.the_copilot().pid)
        it.wait(expect=14)
        it.until_over(tool)


def test_a_copilot_that_stands_still_is_ended_and_the_loop_asks_a_new_one() -> None:
    """It answers neither its model nor an abort; the next process has the same conversation."""
    with product([HANGING, COMPLETE]) as it:
        it.configure('[agent]\nsilence_timeout = "8s"\n')
        it.begin()
        agent = it.the_copilot()
        it.server.wait_for_requests(1)
        it.until_event("assistant.turn_start")  # it is known to wait for its model
        agent.suspend()
        loop = it.wait(expect=0)
        assert not psutil.pid_exists(agent.pid)
        assert (loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"]) == (1, 1, 2)
        assert it.balanced()
