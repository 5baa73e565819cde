"""The session around a loop on the real Pi: its folder, its owner, its entries in Pi's file, its hook."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import PiProduct, product
from tests.support.world import COMMAND_S, words

pytestmark = [pytest.mark.pi, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
LATER = Reply(tools=[decision("continue", nextDelay="1h")])
KEEPS_INPUT = '#!/bin/sh\ncat > "$0.$$"\n'


def run_pi(pi: PiProduct, *args: str, cwd: Path | None = None) -> str:
    """Pi itself, without loopsup."""
    done = subprocess.run(
        ["pi", "-p", *args],
        cwd=cwd or pi.project,
        env=pi.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def session_files(pi: PiProduct) -> list[Path]:
    return sorted((pi.agent_dir / "sessions").glob("*/*.jsonl"))


def test_the_folder_lies_beside_pis_session_and_pi_tolerates_it() -> None:
    with product([COMPLETE, Reply("PI-ALONE"), Reply("PI-AGAIN")]) as pi:
        pi.begin()
        pi.wait(expect=0)
        session = pi.status()["session"]
        file = Path(session["file"])
        assert session["agentSessionId"] == session["id"]
        assert file.name.endswith(f"_{session['id']}.jsonl")
        assert pi.real_folder == file.with_suffix(".loopsup")
        link = pi.home / "sessions" / "project"
        assert link.is_symlink()
        assert stat.S_IMODE(pi.real_folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in pi.real_folder.iterdir()}
        assert modes == dict.fromkeys(
            ("session.toml", "journal.jsonl", "events.jsonl", "supervisor.log", "lock", "agent.json"), 0o600
        )
        pi.act("close")
        assert "PI-ALONE" in run_pi(pi, "--session", session["id"], "hello")
        assert "PI-AGAIN" in run_pi(pi, "--continue", "hello again")
        assert session_files(pi) == [file]
        assert len(user_texts(pi.requests[2])) == 3


def test_a_conversation_made_by_pi_itself_is_adopted() -> None:
    with product([Reply("SECRET-WORD-7"), COMPLETE, COMPLETE]) as pi:
        run_pi(pi, "remember this")
        (file,) = session_files(pi)
        identity = json.loads(file.read_bytes().split(b"\n")[0])["id"]
        started = pi.begin("--continue", identity, objective="go on")["session"]
        assert (started["agentSessionId"], started["file"]) == (identity, str(file))
        pi.wait(expect=0)
        assert user_texts(pi.requests[1])[0] == "remember this"
        assert "SECRET-WORD-7" in json.dumps(pi.requests[1]["messages"])
        assert pi.real_folder == file.with_suffix(".loopsup")
        pi.act("close")
        again = pi.begin("--continue", str(file), objective="once more")["session"]
        assert again["id"] == started["id"]
        pi.wait(expect=0)
        assert session_files(pi) == [file]
        assert len(user_texts(pi.requests[2])) == 3


def test_a_conversation_of_another_directory_is_refused_by_its_name() -> None:
    with product([Reply("hi")]) as pi:
        other = pi.root / "other"
        other.mkdir()
        run_pi(pi, "hello", cwd=other)
        (file,) = session_files(pi)
        for ref in (str(file), file.stem.partition("_")[2]):
            refused = pi.begin("--continue", ref, expect=4)
            assert str(other) in refused["error"]["message"]
        assert pi.act("ls", "--json").out.count(str(pi.project)) == 0
        assert not file.with_suffix(".loopsup").exists()


def test_an_unknown_conversation_is_told_and_nothing_is_made() -> None:
    with product() as pi:
        refused = pi.begin("--continue", "nope", expect=3)
        assert "no Pi session with an id starting with 'nope'" in refused["error"]["message"]
        assert [path.name for path in (pi.home / "sessions").iterdir() if path.name[0] != "."] == []
        assert pi.processes() == []


def test_a_conversation_has_one_owner_whoever_opens_it() -> None:
    """D-43: also through another LOOPSUP_HOME, which knows nothing of the first."""
    with product([LATER]) as pi:
        pi.begin()
        pi.until(state="waiting")
        owner = pi.supervisor()
        refused = pi.begin(expect=4)
        assert "--session" in refused["error"]["message"]
        elsewhere = {"LOOPSUP_HOME": str(pi.root / "h2")}
        options = ["--agent", "pi", "--every", "1m", "--detach", "--json", "--continue", str(pi.pi_file)]
        second = pi.act("start", *options, "obj", env=elsewhere, expect=4).obj
        assert second["error"]["kind"] == "refused"
        assert pi.act("resume", env=elsewhere, expect=4).err == "loopsup: the loop is not paused (waiting)\n"
        assert pi.json("status", env=elsewhere)["session"]["supervisor"]["pid"] == owner
        assert [process.pid for process in pi.processes() if "supervise" in words(process)] == [owner]
        assert len(pi.pis()) == 1


def test_marks_are_in_pis_file_and_never_in_a_request() -> None:
    """Case 111; L-125: the attention event is an entry of Pi's session, unseen by the model."""
    script = [Reply(tools=[decision("block", "needs a person")]), COMPLETE, Reply("fine")]
    with product(script) as pi:
        pi.begin()
        blocked = pi.wait(expect=11)
        pi.act("resume")
        ended = pi.wait(expect=0)
        pi.act("say", "--wait", "hello")
        seq = pi.journal()[-1]["seq"]
        pi.wait_for(lambda: any(mark["seq"] == seq for mark in pi.entries("loopsup")), "the mark of the newest state")
        pi.wait_for(lambda: len(pi.entries("loopsup-attention")) == 2, "both attention events")
        marks = pi.entries("loopsup")
        assert {mark["loopId"] for mark in marks} == {ended["id"]}
        assert [mark["seq"] for mark in marks] == sorted(mark["seq"] for mark in marks)
        assert marks[-1] == {"v": 1, "loopId": ended["id"], "seq": seq}
        assert pi.entries("loopsup-attention") == [blocked["lastAttention"], ended["lastAttention"]]
        sent = json.dumps(pi.requests)
        for hidden in ("loopsup-attention", "calendarElapsedMs", ended["id"], pi.status()["session"]["id"]):
            assert hidden not in sent


def test_the_hook_gets_the_event_with_pis_session() -> None:
    with product([Reply(tools=[decision("complete", "naïve \u2028 summary", 'ev"idence\n')])]) as pi:
        hook = pi.root / "hook"
        hook.write_text(KEEPS_INPUT)
        hook.chmod(0o755)
        pi.configure(f'on_attention = "{hook}"\n')
        pi.begin(objective="objective {} \u2028 ü")
        loop = pi.wait(expect=0)
        ran = pi.until_event("loop.hook")["data"]
        assert ran == {"path": str(hook), "exit": 0, "durationMs": ran["durationMs"]}
        (given,) = pi.root.glob("hook.*")
        raw = given.read_bytes()
        assert raw.isascii()
        assert raw.endswith(b"}\n")
        assert raw.count(b"\n") == 1
        session = pi.status()["session"]
        assert json.loads(raw) == {
            "version": 1,
            "status": "completed",
            "summary": "naïve \u2028 summary",
            "evidence": {"source": "agent", "text": 'ev"idence\n'},
            "objective": "objective {} \u2028 ü",
            "iterationCount": 1,
            "maxIterations": 50,
            "protocolRetryCount": 0,
            "calendarElapsedMs": loop["lastAttention"]["calendarElapsedMs"],
            "deadlineRemainingMs": loop["lastAttention"]["deadlineRemainingMs"],
            "session": {"id": session["agentSessionId"], "file": session["file"], "cwd": str(pi.project)},
            "endedAt": loop["lastAttention"]["endedAt"],
            "observedAt": loop["lastAttention"]["observedAt"],
        }
        assert json.loads(raw) == loop["lastAttention"]
        assert pi.data("loop.attention") == [loop["lastAttention"]]


def test_pis_own_configuration_of_the_hook_is_honoured() -> None:
    with product([COMPLETE]) as pi:
        hook = pi.root / "hook"
        hook.write_text(KEEPS_INPUT)
        hook.chmod(0o755)
        (pi.agent_dir / "loop.json").write_text(json.dumps({"onAttention": str(hook)}))
        pi.begin()
        pi.wait(expect=0)
        assert pi.until_event("loop.hook")["data"]["exit"] == 0
        assert len(list(pi.root.glob("hook.*"))) == 1


def test_a_denied_tool_does_not_run() -> None:
    script = [Reply(tools=[bash("touch made.txt")]), COMPLETE]
    with product(script) as pi:
        pi.configure('[permissions]\ndeny = ["bash"]\n')
        pi.begin()
        pi.wait(expect=0)
        assert not (pi.project / "made.txt").exists()
        (refusal,) = [m["content"] for m in pi.requests[1]["messages"] if m["role"] == "tool"]
        assert "denies the tool bash" in str(refusal)


def test_deny_all_leaves_the_decision() -> None:
    script = [Reply(tools=[bash("touch made.txt")]), COMPLETE]
    with product(script) as pi:
        pi.configure('[permissions]\nmode = "deny"\n')
        pi.begin()
        assert pi.wait(expect=0)["llmCalls"] == 2
        assert not (pi.project / "made.txt").exists()


def test_the_agent_may_look_but_not_decide_for_the_person() -> None:
    tried = "loopsup status >out 2>&1; echo $? >>out; loopsup stop >out2 2>&1; echo $? >>out2"
    with product([Reply(tools=[bash(tried)]), COMPLETE]) as pi:
        pi.begin()
        pi.wait(expect=0)
        assert (pi.project / "out").read_text().split("\n")[-2] == "0"
        assert (pi.project / "out2").read_text().split("\n")[-2] == "4"


ASKING = """pi.on("tool_call", async (event: any, ctx: any) => {
  if (event.toolName === "bash" && !(await ctx.ui.confirm("Run it?", event.input.command)))
    return { block: true, reason: "nobody said yes" }; });"""


def test_a_dialog_of_a_users_extension_is_answered_from_outside() -> None:
    with product([Reply(tools=[bash("touch made.txt")]), COMPLETE]) as pi:
        pi.pi_world.extension("asking", ASKING)
        pi.begin()
        question = pi.wait_for(lambda: pi.loop()["question"], "a question")
        assert "touch made.txt" in question["text"]
        pi.act("answer", "allow", question["id"])
        pi.wait(expect=0)
        assert (pi.project / "made.txt").exists()


def test_no_setting_of_the_users_pi_is_written() -> None:
    with product([Reply(tools=[decision("block")]), COMPLETE]) as pi:
        files = [pi.agent_dir / name for name in ("settings.json", "models.json")]
        before = [file.read_bytes() for file in files]
        pi.begin()
        pi.wait(expect=11)
        pi.act("resume")
        pi.wait(expect=0)
        pi.act("close")
        assert [file.read_bytes() for file in files] == before
        names = sorted(path.name for path in (pi.agent_dir).iterdir())
        assert "auth.json" not in names or (pi.agent_dir / "auth.json").read_text() in ("{}", "")
        assert os.listdir(pi.pi_world.root / "home") in ([], [".cache"])


FORK = """pi.registerCommand("copy", { handler: async (_: any, ctx: any) => {
  const user = ctx.sessionManager.getBranch().filter((e: any) => e.type === "message" && e.message.role === "user");
  await ctx.fork(user[0].id); } });"""


def test_a_fork_pauses_the_loop_and_the_session_keeps_its_conversation() -> None:
    """L-117, case 110: no timer in either conversation."""
    with product([Reply("BEFORE-THE-FORK", [decision("continue", nextDelay="1h")]), COMPLETE]) as pi:
        pi.pi_world.extension("fork", FORK)
        session = pi.begin()["session"]
        pi.until(state="waiting")
        pi.act("say", "/copy")
        loop = pi.wait(expect=16)
        assert (loop["state"], loop["pauseReason"], loop["nextDueAt"]) == ("paused", "fork", None)
        pi.wait_for(lambda: not pi.pis(), "the end of the agent that moved")
        pi.act("resume")
        pi.act("update", "--every", "1s")
        pi.wait(expect=0)
        assert pi.status()["session"]["agentSessionId"] == session["agentSessionId"]
        assert "BEFORE-THE-FORK" in json.dumps(pi.requests[1]["messages"])


def test_a_question_nobody_answers_is_denied_after_its_time() -> None:
    with product([Reply(tools=[bash("touch made.txt")]), COMPLETE]) as pi:
        pi.pi_world.extension("asking", ASKING)
        pi.configure('[permissions]\ntimeout = "1s"\n')
        pi.begin()
        pi.wait(expect=0)
        assert not (pi.project / "made.txt").exists()
        (asked,) = pi.data("permission.requested")
        assert pi.data("permission.completed") == [{"id": asked["id"], "outcome": "denied", "by": "timeout"}]
        assert pi.loop()["question"] is None


def test_a_tool_result_of_many_mebibytes_stalls_nothing() -> None:
    with product([Reply(tools=[bash("seq 1 1500000")]), COMPLETE]) as pi:
        pi.begin()
        assert pi.wait(expect=0)["llmCalls"] == 2
        assert (pi.folder() / "events.jsonl").stat().st_size < 1024 * 1024


def test_two_starts_at_once_make_one_session() -> None:
    with product([LATER, LATER]) as pi:
        argv = ("start", "--agent", "pi", "--every", "auto", "--min-delay", "1s", "--detach", "--json", "obj")
        both = [pi.finish(process, COMMAND_S) for process in [pi.spawn(*argv), pi.spawn(*argv)]]
        assert sorted(ran.code for ran in both) == [0, 4], both
        pi.until(state="waiting")
        assert len(pi.pis()) == 1
        assert len(pi.requests) == 1
        assert [path.name for path in (pi.home / "sessions").iterdir() if path.name[0] != "."] == ["project"]


def test_a_second_session_beside_the_first_has_its_own_pi() -> None:
    with product([LATER, COMPLETE]) as pi:
        first = pi.begin()["session"]
        pi.until(state="waiting")
        second = pi.begin("--session", "second")["session"]
        pi.json("wait", "--session", "second", "--timeout", "100s")
        assert second["file"] != first["file"]
        assert len(user_texts(pi.requests[1])) == 1
        assert pi.loop()["state"] == "waiting"
        assert "--session" in pi.act("wait", expect=2).err


def test_a_deleted_conversation_is_told_and_the_status_names_the_new_file() -> None:
    with product([LATER, COMPLETE]) as pi:
        pi.begin()
        pi.until(state="waiting")
        old = pi.pi_file
        pi.act("close")
        old.unlink()
        pi.act("resume")
        pi.act("update", "--every", "1s")
        pi.wait(expect=0)
        (notice,) = [data["message"] for data in pi.data("loop.notice") if "is gone" in data["message"]]
        assert str(old) in notice
        assert len(user_texts(pi.requests[1])) == 1
        assert session_files(pi) == [pi.pi_file]
        assert pi.loop()["lastAttention"]["session"]["file"] == str(pi.pi_file)
