"""End to end with the real Pi in its terminal interface on a pty of ours: the loop, and a person at its screen."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import PiProduct, product
from tests.support.pty_world import Person, person

pytestmark = [pytest.mark.slow, pytest.mark.pi, pytest.mark.timeout(600)]

PATIENCE_S = 150.0
CONTINUE = Reply("I wait.", [decision("continue")])
COMPLETE = Reply(tools=[decision("complete")])
ASKS = """pi.on("tool_call", async (event: any, ctx: any) => {
    if (event.toolName === "bash" && !(await ctx.ui.confirm("Run it?", "really")))
      return { block: true, reason: "the user said no" };
  });"""


def begin(pi: PiProduct) -> Any:
    words = ["--agent", "pi-tui", "--every", "1h", "--min-delay", "1s", "--detach", "obj"]
    return pi.json("start", *words, timeout=150)


def hurry(pi: PiProduct) -> None:
    pi.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})


def enter(somebody: Person, line: str) -> None:
    """A line, pasted and sent: typed keys would open Pi's list of commands."""
    somebody.types(f"\x1b[200~{line}\x1b[201~")
    somebody.sees(line)
    somebody.types("\r")


def test_a_loop_beside_a_person_whose_draft_is_left_alone() -> None:
    script = [CONTINUE, Reply("Hello yourself."), Reply("A thought indeed."), COMPLETE]
    with product(script) as pi:
        begin(pi)
        pi.until(state="waiting", timeout=PATIENCE_S)
        with person(pi, rows=35, cols=110) as somebody:
            somebody.sees("I wait.")
            somebody.types("half a thou")
            somebody.sees("half a thou")
            saying = pi.spawn("say", "--wait", "hello")
            somebody.sees("Hello yourself.")
            assert pi.finish(saying, PATIENCE_S).code == 0  # it has settled: what is typed now begins a run
            somebody.types("ght\r")
            somebody.sees("A thought indeed.")
            assert somebody.leaves() == 0
        pi.until_event("assistant.turn_end", 3)
        hurry(pi)
        pi.until(state="completed", timeout=PATIENCE_S)
        loop = pi.loop()
        assert (loop["iterationCount"], loop["promptsSent"], loop["protocolRetryCount"]) == (2, 2, 0)
        first, second = pi.said("loop")
        assert "loopsup control" not in first
        assert user_texts(pi.requests[-1]) == [first, "hello", "half a thought", second]
        assert pi.said("user") == ["hello", "half a thought"]
        assert pi.balanced()


def test_the_persons_own_commands_inside_it() -> None:
    with product([CONTINUE]) as pi:
        begin(pi)
        pi.until(state="waiting", timeout=PATIENCE_S)
        with person(pi, rows=35, cols=110) as somebody:
            somebody.sees("loop waiting 1/50")
            enter(somebody, "/loop pause")
            somebody.sees("loop paused (user) 1/50")
            enter(somebody, "/loop status")
            somebody.sees("iteration 1 of 50")
            assert somebody.leaves() == 0
        assert pi.loop()["pauseReason"] == "user"


def test_kill_of_pi_and_of_the_supervisor() -> None:
    with product([CONTINUE, Reply("half an answer", hang="stream"), COMPLETE]) as pi:
        pid = begin(pi)["session"]["supervisor"]["pid"]
        pi.until(state="waiting", timeout=PATIENCE_S)
        killed = pi.the_pi().pid
        pi.kill(killed, signal.SIGKILL)
        pi.until_over(killed)
        hurry(pi)
        pi.wait_for(lambda: len(pi.requests) == 2, "the next iteration", PATIENCE_S)
        with person(pi, rows=35, cols=110) as somebody:
            somebody.sees("half an answer")
            agent = pi.the_pi().pid
            assert agent != killed
            pi.kill(pid)
            assert somebody.ended() == 5
        pi.until_over(agent)
        assert pi.loop()["pauseReason"] == "supervisor_lost"
        pi.json("resume", timeout=150)
        pi.until(state="completed", timeout=PATIENCE_S)
        assert user_texts(pi.requests[-1]) == pi.said("loop")
        assert len(pi.said("loop")) == 3


def test_a_dialog_of_pi_is_shown_in_the_status_and_answered_at_its_screen() -> None:
    with product([Reply(tools=[bash("touch made")]), COMPLETE]) as pi:
        pi.pi_world.extension("asks", ASKS)
        begin(pi)
        question = pi.wait_for(lambda: (pi.peek()["loop"] or {}).get("question"), "the question", PATIENCE_S)
        assert (question["kind"], "Run it?" in question["text"]) == ("dialog", True)
        refused = pi.run("answer", "allow")
        assert (refused.code, "answer it there: `loopsup attach`" in refused.err) == (4, True)
        assert not (pi.project / "made").exists()
        with person(pi, rows=35, cols=110) as somebody:
            somebody.sees("Run it?")
            somebody.types("\r")
            pi.until(state="completed", timeout=PATIENCE_S)
            assert somebody.leaves() == 0
        assert (pi.project / "made").exists()
        (over,) = pi.data("permission.completed")
        assert (over["outcome"], over["by"]) == ("answered in its terminal", "agent")


def test_a_dialog_nobody_answers_ends_pi_and_pauses_the_loop() -> None:
    with product([Reply(tools=[bash("touch made")])]) as pi:
        pi.pi_world.extension("asks", ASKS)
        pi.configure('[permissions]\ntimeout = "2s"\n')
        begin(pi)
        assert pi.run("wait", timeout=PATIENCE_S).code == 14
        assert not (pi.project / "made").exists()
        assert "nobody answered the question" in pi.loop()["lastAttention"]["evidence"]["text"]
