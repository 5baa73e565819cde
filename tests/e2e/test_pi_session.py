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

pytestmark = [pytest.mark.pi, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
LATER = Reply(tools=[decision("continue", nextDelay="1h")])
KEEPS_INPUT = '#!/bin/sh\ncat > "$0.$$"\n'


def run_pi(pi: PiProduct, *args: str, cwd: Path | None = None) -> str:
    """Pi itself, without loopsup."""
    done = subprocess.run(
        ["pi", "-p", *args],
        cwd=cwd or pi.work,
        env=pi.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def session_files(pi: PiProduct) -> list[Path]:
    return sorted((pi.root / "agent" / "sessions").glob("*/*.jsonl"))


def test_the_folder_lies_beside_pis_session_and_pi_tolerates_it() -> None:
    with product([COMPLETE, Reply("PI-ALONE"), Reply("PI-AGAIN")]) as pi:
        pi.start()
        pi.wait(expect=0)
        session = pi.status()["session"]
        file = Path(session["file"])
        assert session["agentSessionId"] == session["id"]
        assert file.name.endswith(f"_{session['id']}.jsonl")
        assert pi.folder == file.with_suffix(".loopsup")
        link = pi.home / "sessions" / "work"
        assert link.is_symlink()
        assert stat.S_IMODE(pi.folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in pi.folder.iterdir()}
        assert modes == dict.fromkeys(
            ("session.toml", "journal.jsonl", "events.jsonl", "supervisor.log", "lock"), 0o600
        )
        pi.run("close")
        assert "PI-ALONE" in run_pi(pi, "--session", session["id"], "hello")
        assert "PI-AGAIN" in run_pi(pi, "--continue", "hello again")
        assert session_files(pi) == [file]
        assert len(user_texts(pi.requests[2])) == 3


def test_a_conversation_made_by_pi_itself_is_adopted() -> None:
    with product([Reply("SECRET-WORD-7"), COMPLETE, COMPLETE]) as pi:
        run_pi(pi, "remember this")
        (file,) = session_files(pi)
        identity = json.loads(file.read_bytes().split(b"\n")[0])["id"]
        started = pi.start("--continue", identity, objective="go on").json["session"]
        assert (started["agentSessionId"], started["file"]) == (identity, str(file))
        pi.wait(expect=0)
        assert user_texts(pi.requests[1])[0] == "remember this"
        assert "SECRET-WORD-7" in json.dumps(pi.requests[1]["messages"])
        assert pi.folder == file.with_suffix(".loopsup")
        pi.run("close")
        again = pi.start("--continue", str(file), objective="once more").json["session"]
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
            refused = pi.start("--continue", ref, expect=4).json
            assert str(other) in refused["error"]["message"]
        assert pi.run("ls", "--json").out.count(str(pi.work)) == 0
        assert not file.with_suffix(".loopsup").exists()


def test_an_unknown_conversation_is_told_and_nothing_is_made() -> None:
    with product() as pi:
        refused = pi.start("--continue", "nope", expect=3).json
        assert "no Pi session with an id starting with 'nope'" in refused["error"]["message"]
        assert [path.name for path in (pi.home / "sessions").iterdir() if path.name[0] != "."] == []
        assert pi.processes() == []


def test_a_conversation_has_one_owner_whoever_opens_it() -> None:
    """D-43: also through another LOOPSUP_HOME, which knows nothing of the first."""
    with product([LATER]) as pi:
        pi.start()
        pi.until(lambda: pi.loop()["state"] == "waiting", "waiting")
        owner = pi.supervisor().pid
        refused = pi.start(expect=4).json
        assert "--session" in refused["error"]["message"]
        elsewhere = {**pi.env, "LOOPSUP_HOME": str(pi.root / "lh2")}
        options = ["--agent", "pi", "--every", "1m", "--detach", "--json", "--continue", str(pi.pi_file)]
        second = pi.run("start", *options, "obj", env=elsewhere, expect=4).json
        assert second["error"]["kind"] == "refused"
        for verb in ("resume", "pause"):
            pi.run(verb, env={**elsewhere, "LOOPSUP_SESSION": "work"}, expect=None)
        assert [process.pid for process in pi.processes() if "supervise" in process.cmdline()] == [owner]
        assert len(pi.pis()) == 1


def test_marks_are_in_pis_file_and_never_in_a_request() -> None:
    """Case 111; L-125: the attention event is an entry of Pi's session, unseen by the model."""
    script = [Reply(tools=[decision("block", "needs a person")]), COMPLETE, Reply("fine")]
    with product(script) as pi:
        pi.start()
        blocked = pi.wait(expect=11)
        pi.run("resume")
        ended = pi.wait(expect=0)
        pi.run("say", "--wait", "hello")
        marks = pi.until(lambda: pi.entries("loopsup"), "marks")
        seqs = [record["seq"] for record in pi.records("journal.jsonl")]
        assert {mark["loopId"] for mark in marks} == {ended["id"]}
        assert [mark["seq"] for mark in marks] == sorted(mark["seq"] for mark in marks)
        assert marks[-1] == {"v": 1, "loopId": ended["id"], "seq": seqs[-1]}
        assert pi.entries("loopsup-attention") == [blocked["lastAttention"], ended["lastAttention"]]
        sent = json.dumps(pi.requests)
        for hidden in ("loopsup-attention", "calendarElapsedMs", ended["id"], pi.status()["session"]["id"]):
            assert hidden not in sent


def test_the_hook_gets_the_event_with_pis_session() -> None:
    with product([Reply(tools=[decision("complete", "naïve \u2028 summary", 'ev"idence\n')])]) as pi:
        hook = pi.root / "hook"
        hook.write_text(KEEPS_INPUT)
        hook.chmod(0o755)
        pi.config(f'on_attention = "{hook}"\n')
        pi.start(objective="objective {} \u2028 ü")
        loop = pi.wait(expect=0)
        (ran,) = [pi.until_event("loop.hook")]
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
            "session": {"id": session["agentSessionId"], "file": session["file"], "cwd": str(pi.work)},
            "endedAt": loop["lastAttention"]["endedAt"],
            "observedAt": loop["lastAttention"]["observedAt"],
        }
        assert json.loads(raw) == loop["lastAttention"]
        assert pi.events("loop.attention") == [loop["lastAttention"]]


def test_pis_own_configuration_of_the_hook_is_honoured() -> None:
    with product([COMPLETE]) as pi:
        hook = pi.root / "hook"
        hook.write_text(KEEPS_INPUT)
        hook.chmod(0o755)
        (pi.root / "agent" / "loop.json").write_text(json.dumps({"onAttention": str(hook)}))
        pi.start()
        pi.wait(expect=0)
        assert pi.until_event("loop.hook")["exit"] == 0
        assert len(list(pi.root.glob("hook.*"))) == 1


def test_a_denied_tool_does_not_run() -> None:
    script = [Reply(tools=[bash("touch made.txt")]), COMPLETE]
    with product(script) as pi:
        pi.config('[permissions]\ndeny = ["bash"]\n')
        pi.start()
        pi.wait(expect=0)
        assert not (pi.work / "made.txt").exists()
        (refusal,) = [m["content"] for m in pi.requests[1]["messages"] if m["role"] == "tool"]
        assert "denies the tool bash" in str(refusal)


def test_deny_all_leaves_the_decision() -> None:
    script = [Reply(tools=[bash("touch made.txt")]), COMPLETE]
    with product(script) as pi:
        pi.config('[permissions]\nmode = "deny"\n')
        pi.start()
        assert pi.wait(expect=0)["llmCalls"] == 2
        assert not (pi.work / "made.txt").exists()


def test_the_agent_may_look_but_not_decide_for_the_person() -> None:
    tried = "loopsup status >out 2>&1; echo $? >>out; loopsup stop >out2 2>&1; echo $? >>out2"
    with product([Reply(tools=[bash(tried)]), COMPLETE]) as pi:
        pi.start()
        pi.wait(expect=0)
        assert (pi.work / "out").read_text().split("\n")[-2] == "0"
        assert (pi.work / "out2").read_text().split("\n")[-2] == "4"


def test_a_dialog_of_a_users_extension_is_answered_from_outside() -> None:
    with product([Reply(tools=[bash("touch made.txt")]), COMPLETE]) as pi:
        pi.world.extension(
            "asking",
            """pi.on("tool_call", async (event: any, ctx: any) => {
              if (event.toolName === "bash" && !(await ctx.ui.confirm("Run it?", event.input.command)))
                return { block: true, reason: "nobody said yes" }; });""",
        )
        pi.start()
        question = pi.until(lambda: pi.loop()["question"], "a question")
        assert "touch made.txt" in question["text"]
        pi.run("answer", "allow", question["id"])
        pi.wait(expect=0)
        assert (pi.work / "made.txt").exists()


def test_no_setting_of_the_users_pi_is_written() -> None:
    with product([Reply(tools=[decision("block")]), COMPLETE]) as pi:
        files = [pi.root / "agent" / name for name in ("settings.json", "models.json")]
        before = [file.read_bytes() for file in files]
        pi.start()
        pi.wait(expect=11)
        pi.run("resume")
        pi.wait(expect=0)
        pi.run("close")
        assert [file.read_bytes() for file in files] == before
        names = sorted(path.name for path in (pi.root / "agent").iterdir())
        assert "auth.json" not in names or (pi.root / "agent" / "auth.json").read_text() in ("{}", "")
        assert os.listdir(pi.root / "home") in ([], [".cache"])
