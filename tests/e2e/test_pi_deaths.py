"""Killed agents, killed supervisors, closed terminals: on the real Pi, nothing lies and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading

import pexpect
import psutil
import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import product
from tests.support.terminals import hang_up
from tests.support.world import LOOPSUP

pytestmark = [pytest.mark.pi, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
HANGING = Reply("half", hang="stream")


def test_an_agent_killed_in_mid_turn_pauses_the_loop_and_resume_brings_it_back() -> None:
    with product([HANGING, COMPLETE]) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        pi.until_event("assistant.turn_start")
        killed = pi.the_pi().pid
        pi.kill(killed)
        loop = pi.wait(expect=14)
        assert (loop["pauseReason"], loop["iterationCount"], loop["llmCalls"]) == ("protocol_error", 1, 1)
        evidence = loop["lastAttention"]["evidence"]
        assert evidence == {"source": "extension", "text": "The agent ended during iteration 1: signal 9 (SIGKILL)."}
        (error,) = pi.data("session.error")
        assert error == {"kind": "agent_lost", "message": "the agent ended: signal 9 (SIGKILL)"}
        assert pi.balanced()
        pi.act("resume")
        loop = pi.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        assert [text.split("\n")[2] for text in user_texts(pi.requests[1])] == [
            "Iteration: 1 of 50",
            "Iteration: 2 of 50",
        ]
        assert pi.balanced()


def test_an_agent_killed_between_iterations_is_brought_back_for_the_next_wake() -> None:
    with product([Reply("FIRST", [decision("continue", nextDelay="1h")]), COMPLETE]) as pi:
        pi.begin()
        pi.until(state="waiting")
        killed = pi.the_pi().pid
        pi.kill(killed)
        pi.until_event("session.error")
        assert pi.loop()["state"] == "waiting"
        pi.act("update", "--every", "1s")
        loop = pi.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        assert "FIRST" in json.dumps(pi.requests[1]["messages"])
        assert len(pi.data("session.resume")) == 1


@pytest.mark.skipif(
    shutil.which("setsid") is None, reason="the tool leaves its session by setsid(1), which macOS does not have"
)
def test_a_tool_in_a_session_of_its_own_is_ended_by_the_next_supervisor() -> None:
    far = "setsid sh -c 'echo $$ > pid; while :; do sleep 1; done' > /dev/null 2>&1 &"
    with product([Reply("I run it.", [bash(far)]), HANGING, COMPLETE]) as pi:
        pi.begin()
        tool = int(pi.file_text("pid"))
        pi.server.wait_for_requests(2)
        agent, owner = pi.the_pi(), pi.supervisor()
        pi.kill(owner)
        pi.until_over(agent.pid)
        assert psutil.Process(tool).is_running()
        pi.act("resume")
        pi.until_over(tool)
        assert pi.wait(expect=0)["iterationCount"] == 2


def test_a_killed_supervisor_takes_pi_along_and_status_tells_the_truth() -> None:
    script = [Reply("I run it.", [bash("echo $$ > pid; sleep 300")]), COMPLETE]
    with product(script) as pi:
        pi.begin()
        tool = int(pi.file_text("pid"))
        agent, owner = pi.the_pi(), pi.supervisor()
        serving = {"alive": True, "responding": True, "pid": owner}  # within two seconds, or it says that it does not
        pi.wait_for(lambda: pi.status()["session"]["supervisor"] == serving, "an answer in time")
        pi.kill(owner)
        pi.until_over(agent.pid)
        pi.until_over(tool)
        status = pi.status()
        assert status["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}
        assert (status["loop"]["state"], status["loop"]["pauseReason"]) == ("paused", "supervisor_lost")
        assert pi.wait(expect=17)["pauseReason"] == "supervisor_lost"
        assert pi.act("abort", expect=5).out == ""
        pi.act("resume")
        loop = pi.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 2)
        assert user_texts(pi.requests[1])[0] == user_texts(pi.requests[0])[0]
        assert "I run it." in json.dumps(pi.requests[1]["messages"])
        assert pi.balanced()


def test_an_orphaned_pi_that_hangs_is_no_second_writer() -> None:
    """The supervisor is killed while Pi is stopped: it cannot see its closed input, and the session is reopened."""
    with product([HANGING, COMPLETE]) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        agent, owner = pi.the_pi(), pi.supervisor()
        agent.suspend()
        pi.kill(owner)
        pi.act("resume")
        assert pi.wait(expect=0)["iterationCount"] == 2
        assert not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE


def test_a_supervisor_killed_between_iterations_fires_nothing_until_it_is_resumed() -> None:
    with product([Reply(tools=[decision("continue", nextDelay="1h")]), COMPLETE]) as pi:
        pi.begin()
        pi.until(state="waiting")
        agent = pi.the_pi().pid
        pi.kill(pi.supervisor())
        pi.until_over(agent)
        pi.until_deserted()  # nobody is there who could fire
        loop = pi.loop()
        assert (loop["state"], loop["pauseReason"], loop["nextDueAt"]) == ("paused", "supervisor_lost", None)
        assert len(pi.requests) == 1
        pi.act("resume")
        pi.act("update", "--every", "1s")
        assert pi.wait(expect=0)["iterationCount"] == 2


def test_a_terminal_closed_in_mid_turn_changes_nothing() -> None:
    gate = threading.Event()
    with product([Reply("Looking.", [decision("complete")], gate=gate)]) as pi:
        argv = [*LOOPSUP[1:], "start", "--agent", "pi", "--every", "1m", "watch"]
        terminal = pexpect.spawn(LOOPSUP[0], argv, cwd=str(pi.project), env=pi.env, timeout=60)
        pi.server.wait_for_requests(1)
        hang_up(terminal)  # the pty goes: SIGHUP to its foreground
        assert pi.loop()["state"] == "running"
        gate.set()
        assert pi.wait(expect=0)["iterationCount"] == 1


def test_ctrl_c_of_a_follower_only_leaves() -> None:
    gate = threading.Event()
    with product([Reply("Looking.", [decision("complete")], gate=gate)]) as pi:
        argv = [*LOOPSUP[1:], "start", "--agent", "pi", "--every", "1m", "watch"]
        terminal = pexpect.spawn(LOOPSUP[0], argv, cwd=str(pi.project), env=pi.env, timeout=60)
        pi.server.wait_for_requests(1)
        pi.wait_for(lambda: pi.status()["session"]["clients"] == 1, "the follower")
        terminal.sendintr()
        terminal.expect("the loop goes on")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 130
        terminal.close()
        gate.set()
        assert pi.wait(expect=0)["iterationCount"] == 1


def test_close_in_mid_turn_pauses_and_leaves_no_process() -> None:
    with product([Reply(tools=[bash("echo $$ > pid; sleep 300")]), COMPLETE]) as pi:
        pi.begin()
        pi.file_text("pid")
        pi.act("close")
        pi.until_deserted()
        loop = pi.wait(expect=17)
        assert (loop["pauseReason"], loop["llmCalls"]) == ("session_closed", 1)
        assert pi.balanced()
        assert not list((pi.home / "run").iterdir())
        pi.act("resume")
        assert pi.wait(expect=0)["iterationCount"] == 2


def test_a_foreground_supervisor_closes_on_sigterm() -> None:
    with product([HANGING]) as pi:
        process = pi.spawn("start", "--agent", "pi", "--every", "1m", "--foreground", "watch")
        pi.server.wait_for_requests(1)
        process.send_signal(signal.SIGTERM)
        pi.finish(process)
        assert process.returncode == 17
        assert pi.processes() == []
        assert pi.loop()["pauseReason"] == "session_closed"


def test_everything_killed_at_once_resumes_in_the_same_conversation() -> None:
    """Power failure."""
    with product([Reply("BEFORE", [decision("continue", nextDelay="1s")]), HANGING, COMPLETE]) as pi:
        pi.begin()
        pi.server.wait_for_requests(2)
        pi.until_event("assistant.turn_start", 2)
        owner, agent = pi.supervisor(), pi.the_pi().pid
        for pid in (owner, agent):
            with contextlib.suppress(ProcessLookupError):  # it may have seen the end of the other one
                os.kill(pid, signal.SIGKILL)
        pi.until_over(owner)
        pi.until_over(agent)
        assert pi.loop()["pauseReason"] == "supervisor_lost"
        pi.act("resume")
        loop = pi.wait(expect=0)
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (3, 3, 3)
        assert "BEFORE" in json.dumps(pi.requests[2]["messages"])
        assert pi.balanced()


# In the middle of its first answer, and not later, however slow the test is: the watchdog waits for nobody.
STOPS_ONCE = """
  const { existsSync, writeFileSync } = require("node:fs");
  pi.on("message_update", () => {
    if (existsSync(%s)) return;
    writeFileSync(%s, String(process.pid));
    setTimeout(() => process.kill(process.pid, "SIGSTOP"), 100);
  });"""


def test_a_pi_that_stands_still_is_ended_by_the_watchdog_and_the_loop_asks_a_new_one() -> None:
    """It answers neither its model nor an abort; the next process has the same conversation."""
    with product([HANGING, COMPLETE]) as pi:
        pi.configure('[agent]\nsilence_timeout = "6s"\n')
        pi.pi_world.extension("stops", STOPS_ONCE.replace("%s", json.dumps(str(pi.project / "stopped"))))
        pi.begin()
        agent = int(pi.file_text("stopped"))
        loop = pi.wait(expect=0)
        assert not psutil.pid_exists(agent)
        assert (loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"]) == (1, 1, 2)
        assert pi.balanced()


def test_close_ends_a_pi_that_stands_still() -> None:
    with product([HANGING]) as pi:
        pi.begin()
        pi.server.wait_for_requests(1)
        pi.the_pi().suspend()
        pi.act("close")
        pi.until_deserted()
        assert pi.loop()["pauseReason"] == "session_closed"


def test_a_killed_pi_takes_its_tool_along() -> None:
    """Pi gives its tools sessions of their own: they outlive its SIGKILL unless somebody ends them."""
    # The supervisor looks for tools half a second after it has heard of one: it has, when it answers the second time.
    seen = "loopsup status > out; sleep 1; loopsup status > out; echo $$ > pid; sleep 300"
    with product([Reply(tools=[bash(seen)]), COMPLETE]) as pi:
        pi.begin()
        tool = int(pi.file_text("pid"))
        pi.kill(pi.the_pi().pid)
        pi.wait(expect=14)
        pi.until_over(tool)
        pi.wait_for(lambda: not list((pi.home / "run").glob("pi-*")), "the end of its socket")  # nor is that left
