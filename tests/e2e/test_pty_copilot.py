"""End to end with the real Copilot in its terminal interface: the loop, and a person at its screen."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.copilot_env import shell
from tests.support.copilot_product import CopilotProduct, product
from tests.support.model_server import Reply, Tool
from tests.support.pty_world import person, told_of_a_draft

pytestmark = [pytest.mark.slow, pytest.mark.copilot, pytest.mark.timeout(600)]

PATIENCE_S = 150.0


def decide(verb: str, summary: str = "looked") -> Reply:
    call: Tool = ("loopsup-loop_control", {"decision": verb, "summary": summary, "evidence": "make test: 3 passed"})
    return Reply("I decide.", tools=[call])


@contextmanager
def trusted(*replies: Reply) -> Iterator[CopilotProduct]:
    """Its user has trusted the directory."""
    with product(replies) as it:
        home = it.root / "copilot"
        home.mkdir()
        (home / "config.json").write_text(json.dumps({"trustedFolders": [str(it.project)]}))
        yield it


def begin(it: CopilotProduct, *options: str, every: str = "1h", after: tuple[str, ...] = ()) -> Any:
    words = ["--agent", "copilot-tui", "--every", every, "--min-delay", "1s", "--detach", *options, "obj"]
    return it.json("start", *words, *(("--", *after) if after else ()), timeout=150)


def test_iterations_in_one_conversation_with_the_turns_of_its_log() -> None:
    script = [decide("continue"), Reply("I wait."), decide("complete", "green"), Reply("Done.")]
    with trusted(*script) as it:
        begin(it, every="1s")
        assert it.run("wait", timeout=PATIENCE_S).code == 0
        loop = it.loop()
        assert (loop["iterationCount"], loop["promptsSent"], loop["llmCalls"]) == (2, 2, 4)
        assert it.balanced()
        assert it.heard() == it.said("loop")
        assert "loopsup control" not in it.said("loop")[0]
        assert [event["data"]["success"] for event in it.events("tool.execution_complete")] == [True, True]
        assert list(it.socket().parent.glob("mcp-*.json")) != []
        run = it.socket().parent
        it.ok("close")
        assert list(run.glob("mcp-*.json")) == []


def test_a_person_attaches_answers_a_question_and_leaves() -> None:
    """The question is in the status; no key of ours; a draft waits; the terminal is given back."""
    script = [Reply("", tools=[shell("touch made")]), decide("continue"), Reply("I wait."), Reply("Hello yourself.")]
    with trusted(*script) as it:
        begin(it)
        question = it.wait_for(lambda: (it.peek()["loop"] or {}).get("question"), "the question", PATIENCE_S)
        assert "touch made" in question["text"]
        with person(it, rows=35, cols=110) as somebody:
            somebody.sees("Do you want to run this command?")
            assert not (it.project / "made").exists()
            somebody.types("1")
            it.until(state="waiting", timeout=PATIENCE_S)
            assert (it.project / "made").exists()
            somebody.types("half a thou")
            somebody.sees("half a thou")
            it.ask("say", text="hello")
            it.wait_for(lambda: told_of_a_draft(it), "the notice", PATIENCE_S)
            somebody.types("\x15")
            it.wait_for(lambda: "hello" in it.said("user"), "the message", PATIENCE_S)
            assert somebody.leaves() == 0
        it.wait_for(lambda: it.heard()[-1] == "hello", "the request with the message")  # its log may be faster


def test_kill_of_the_program_and_of_the_supervisor() -> None:
    script = [decide("continue"), Reply("I wait."), Reply("", hang="stream"), decide("complete"), Reply("Done.")]
    with trusted(*script) as it:
        pid = begin(it)["session"]["supervisor"]["pid"]
        it.until(state="waiting", timeout=PATIENCE_S)
        it.kill(it.agent_pid(), signal.SIGKILL)
        it.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
        it.wait_for(lambda: len(it.requests) == 3, "the next iteration", PATIENCE_S)
        with person(it) as somebody:
            somebody.sees("Working")
            agent = it.agent_pid()
            it.kill(pid)
            assert somebody.ended() == 5
        it.until_over(agent)
        assert it.loop()["pauseReason"] == "supervisor_lost"
        it.json("resume", timeout=150)
        it.until(state="completed", timeout=PATIENCE_S)
        assert len(it.heard()) == 3


def test_a_directory_nobody_trusted_is_not_begun_in() -> None:
    with product() as it:
        words = ["start", "--agent", "copilot-tui", "--every", "1h", "--detach", "obj"]
        refused = it.run(*words, timeout=150)
        assert refused.code == 6
        assert "asks a question at its start; run it yourself in this directory once" in refused.err
        assert it.requests == []
