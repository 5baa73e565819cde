"""The session around a loop on the real Copilot: its folder, its owner, its questions, what cannot be started."""

from __future__ import annotations

import json
import stat
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support.copilot_env import shell
from tests.support.copilot_product import CopilotProduct, product
from tests.support.model_server import Reply, decision

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
BLOCK = Reply(tools=[decision("block", "needs a person", "bash was denied")])
LATER = Reply(tools=[decision("continue", nextDelay="1h")])
TOUCH = Reply(tools=[shell("touch made.txt")])


def run_copilot(it: CopilotProduct, *args: str) -> None:
    """Copilot itself, without loopsup."""
    done = subprocess.run(
        ["copilot", *args, "--allow-all-tools"],
        cwd=it.project,
        env=it.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_folder_lies_in_copilots_session_and_copilot_goes_on_with_its_own() -> None:
    """Also with `--continue`, which takes the newest session there is."""
    with product([COMPLETE, Reply("ALONE"), Reply("AGAIN")]) as it:
        it.begin()
        it.wait(expect=0)
        session = it.status()["session"]
        assert session["agentSessionId"] == session["id"]
        assert session["file"] == str(it.root / "copilot" / "session-state" / session["id"] / "events.jsonl")
        folder = Path(session["file"]).with_suffix(".loopsup")
        link = it.home / "sessions" / "project"
        assert link.is_symlink()
        assert link.resolve() == folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        it.act("close")
        run_copilot(it, "-p", "hello", f"--resume={session['id']}")
        run_copilot(it, "-p", "hello again", "--continue")
        assert len(it.heard()) == 3
        assert it.heard()[1:] == ["hello", "hello again"]


def test_a_conversation_made_by_copilot_itself_is_adopted() -> None:
    with product([Reply("SECRET-WORD-7"), COMPLETE, COMPLETE]) as it:
        identity = str(uuid.uuid4())
        run_copilot(it, "-p", "remember this", "--session-id", identity)
        started = it.begin("--continue", identity[:13], objective="go on")["session"]
        assert started["agentSessionId"] == identity
        it.wait(expect=0)
        assert it.heard()[0] == "remember this"
        assert "SECRET-WORD-7" in json.dumps(it.requests[1]["messages"])
        it.act("close")
        again = it.begin("--continue", started["file"], objective="once more")["session"]
        assert again["id"] == started["id"]
        it.wait(expect=0)
        assert len(it.heard()) == 3


def test_an_unknown_conversation_is_told_and_nothing_is_made() -> None:
    with product() as it:
        refused = it.begin("--continue", "nope", expect=3)
        assert "no Copilot session with an id starting with 'nope'" in refused["error"]["message"]
        assert [path.name for path in (it.home / "sessions").iterdir() if path.name[0] != "."] == []
        assert it.processes() == []


def test_a_conversation_has_one_owner_whoever_opens_it() -> None:
    """D-43: also through another LOOPSUP_HOME, which knows nothing of the first."""
    with product([LATER]) as it:
        file = it.begin()["session"]["file"]
        it.until(state="waiting")
        elsewhere = {"LOOPSUP_HOME": str(it.root / "h2")}
        options = ["--agent", "copilot", "--every", "1m", "--detach", "--json", "--continue", file]
        second = it.act("start", *options, "obj", env=elsewhere, expect=4).obj
        assert second["error"]["kind"] == "refused"


def test_a_question_is_shown_and_answered_by_a_person() -> None:
    with product([TOUCH, COMPLETE]) as it:
        it.begin()
        it.wait_for(lambda: it.loop()["question"], "the question")
        question = it.loop()["question"]
        assert (question["kind"], question["tool"]) == ("permission", "bash")
        assert question["text"] == "shell: touch made.txt (a command)"
        assert "touch made.txt" in it.act("status").out
        it.act("answer", "allow")
        assert it.wait(expect=0)["question"] is None
        assert (it.project / "made.txt").exists()
        (done,) = it.data("permission.completed")
        assert (done["id"], done["outcome"]) == (question["id"], "allowed")
        assert it.act("answer", "allow", expect=4).out == ""


def test_a_person_says_no() -> None:
    with product([TOUCH, BLOCK]) as it:
        it.begin()
        it.wait_for(lambda: it.loop()["question"], "the question")
        it.act("answer", "deny")
        assert it.wait(expect=11)["pauseReason"] == "blocked"
        assert not (it.project / "made.txt").exists()
        assert "rejected" in it.tool_texts()[0]


def test_a_question_nobody_answers_is_denied_with_words_that_let_the_model_block() -> None:
    with product([TOUCH, BLOCK]) as it:
        it.configure('[permissions]\ntimeout = "2s"\n')
        it.begin()
        loop = it.wait(expect=11)
        assert (loop["pauseReason"], loop["lastDecision"]["summary"]) == ("blocked", "needs a person")
        assert "No person answered within 2s" in it.tool_texts()[0]
        assert "decision block" in it.tool_texts()[0]
        (done,) = it.data("permission.completed")
        assert (done["outcome"], done["by"]) == ("denied", "timeout")


@pytest.mark.parametrize(
    ("policy", "options", "made"),
    [
        ('mode = "allow"', (), True),
        ('allow = ["bash"]', (), True),
        ("", ("--allow-all",), True),
        ('mode = "deny"', (), False),
        ('mode = "allow"\ndeny = ["bash"]', (), False),
        ('deny = ["bash"]', ("--allow-all",), False),
    ],
)
def test_the_policy_answers_without_a_person(policy: str, options: tuple[str, ...], made: bool) -> None:
    with product([TOUCH, COMPLETE]) as it:
        it.configure(f"[permissions]\n{policy}\n")
        it.begin(*options)
        assert it.wait(expect=0)["llmCalls"] == 2
        assert (it.project / "made.txt").exists() is made
        assert it.loop()["question"] is None
        if not made:
            assert "denies the tool bash" in it.tool_texts()[0]


def test_the_agent_cannot_answer_for_the_person() -> None:
    """A shell below the agent is told apart on the control socket."""
    script = [Reply(tools=[shell("loopsup resume > out.txt 2>&1; echo $? >> out.txt")]), COMPLETE]
    with product(script) as it:
        it.begin("--allow-all")
        it.wait(expect=0)
        said = it.file_text("out.txt")
        assert said.splitlines()[-1] == "4", said


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"COPILOT_CLI_PATH": "/nowhere/copilot"}, "COPILOT_CLI_PATH names '/nowhere/copilot'"),
        ({"COPILOT_PROVIDER_BASE_URL": ""}, "COPILOT_OFFLINE is set and there is no model provider"),
        ({"COPILOT_MODEL": ""}, "no model is named; set COPILOT_MODEL"),
        ({"COPILOT_PROVIDER_BASE_URL": "", "COPILOT_OFFLINE": ""}, "copilot is not logged in to GitHub"),
    ],
)
def test_what_cannot_be_started_says_what_to_do_and_leaves_nothing(env: dict[str, str], words: str) -> None:
    with product() as it:
        argv = ["start", "--agent", "copilot", "--every", "1m", "--detach", "--json", "obj"]
        refused = it.act(*argv, env=env, expect=6).obj["error"]
        assert refused["kind"] == "agent_unable"
        assert words in refused["message"]
        assert "\n" not in refused["message"]
        assert [path.name for path in (it.home / "sessions").iterdir() if path.name[0] != "."] == []
        it.until_deserted()


def test_options_after_the_dashes_are_checked_before_anything_starts() -> None:
    with product([COMPLETE]) as it:
        refused = it.begin(after=("--autopilot",), expect=2)
        assert "a loop has one driver" in refused["error"]["message"]
        it.begin(after=("--model", "other-1"))
        it.wait(expect=0)
        assert it.requests[0]["model"] == "other-1"
