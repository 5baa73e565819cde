"""How a loop on the real Pi begins: who is missing, what cannot start, and every byte of the objective."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import psutil
import pytest

from tests.support.model_server import Reply, bash, decision, user_texts
from tests.support.pi_product import PiProduct, product

pytestmark = [pytest.mark.pi, pytest.mark.slow]

COMPLETE = Reply(tools=[decision("complete")])
OLD_NODE = """#!/bin/sh
echo "file:///opt/pi/cli.js:1" >&2
echo "SyntaxError: The requested module 'node:module' does not provide an export named 'enableCompileCache'" >&2
echo "Node.js v20.20.2" >&2
exit 1
"""


def nothing_is_left(pi: PiProduct) -> bool:
    """No session, no socket, no process, no folder in Pi's own directory."""
    sessions = pi.home / "sessions"
    run = pi.home / "run"
    names = [path.name for path in sessions.iterdir() if path.name != ".lock"] if sessions.is_dir() else []
    sockets = list(run.iterdir()) if run.is_dir() else []
    beside = list(pi.agent_dir.glob("sessions/*/*"))
    return (names, sockets, beside, pi.processes()) == ([], [], [], [])


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_missing_pi_is_told_with_the_way_to_get_it() -> None:
    with product() as pi:
        pi.env["PATH"] = "/nowhere"
        error = pi.begin(expect=6)["error"]
        assert error["kind"] == "agent_unable"
        assert "`pi` is not on PATH" in error["message"]
        assert "npm install -g @earendil-works/pi-coding-agent" in error["message"]
        assert nothing_is_left(pi)


def test_no_agent_at_all_is_told_with_three_ways_on() -> None:
    with product() as pi:
        pi.env["PATH"] = "/nowhere"
        error = pi.json("start", "--every", "1m", "--detach", "obj", code=6)["error"]
        for way in ("install", "--agent", "default_agent"):
            assert way in error["message"]
        assert nothing_is_left(pi)


def test_a_configured_command_that_is_none_is_told() -> None:
    with product() as pi:
        pi.configure('[agents.pi]\ncommand = "/nowhere/pi"\n')
        assert "'/nowhere/pi'" in pi.begin(expect=6)["error"]["message"]
        assert nothing_is_left(pi)


def test_a_pi_that_cannot_start_is_told_in_its_own_words_and_leaves_nothing() -> None:
    with product() as pi:
        message = pi.begin(after=("-e", "/nowhere.ts"), expect=6)["error"]["message"]
        assert message.startswith("pi ended at its start: exit status 1; ")
        assert "/nowhere.ts" in message
        assert nothing_is_left(pi)
        # The same in the foreground and for people.
        ran = pi.act(
            "start", "--agent", "pi", "--every", "1m", "--foreground", "obj", "--", "-e", "/nowhere.ts", expect=6
        )
        assert "/nowhere.ts" in ran.err
        assert "Traceback" not in ran.err
        assert nothing_is_left(pi)


def test_a_node_that_is_too_old_is_told() -> None:
    with product() as pi:
        old = executable(pi.root / "old" / "pi", OLD_NODE)
        pi.env["PATH"] = f"{old.parent}:{os.environ['PATH']}"
        message = pi.begin(expect=6)["error"]["message"]
        assert "Node.js v20.20.2" in message
        assert "(Pi needs node 22.19 or newer)" in message
        assert nothing_is_left(pi)


def test_an_argument_that_is_loopsups_is_refused_before_anything() -> None:
    with product() as pi:
        for argument in ("--mode", "--session", "--print"):
            assert argument in pi.begin(after=(argument, "x"), expect=2)["error"]["message"]
        assert nothing_is_left(pi)


def test_arguments_after_the_dashes_reach_pi() -> None:
    with product([COMPLETE]) as pi:
        pi.begin(after=("--append-system-prompt", "SPEAK-LIKE-A-PIRATE"))
        pi.wait(expect=0)
        assert "SPEAK-LIKE-A-PIRATE" in str(pi.requests[0]["messages"][0]["content"])


def test_a_pi_without_a_key_is_told_in_its_words_and_no_iteration_counts() -> None:
    with product() as pi:
        (pi.agent_dir / "models.json").write_text("{}")
        (pi.agent_dir / "settings.json").write_text("{}")
        pi.begin()
        pi.until_event("loop.notice")
        told = pi.data("loop.notice")[0]["message"]
        assert "No API key" in told or "No model" in told
        assert pi.loop()["iterationCount"] == 0
        pi.act("stop")


OBJECTIVES = {
    "braces": "{} {0} {name} %s %(x)s $HOME `id` \\n \\",
    "quotes": "say \"it\" and 'it' -- and \u201ait\u2018",
    "lines": "\n  first\r\n\tsecond\n\n",
    "spaces": "  two before, three after   ",
    "separators": "a\u2028b\u2029c\u0085d\x0be",
    "unicode": "ü 漢字 \U0001f600 e\u0301 \u202eabc",
    "slash": "/loop ! not a command",
}


def test_the_objective_arrives_byte_for_byte() -> None:
    """L-05, as an argument: one loop after the other in the same session."""
    with product([COMPLETE] * len(OBJECTIVES)) as pi:
        for number, objective in enumerate(OBJECTIVES.values()):
            pi.begin(objective=objective)
            assert pi.wait(expect=0)["objective"] == objective
            text = user_texts(pi.requests[number])[-1]
            assert text.startswith(f"[loop iteration]\nObjective (verbatim): {objective}\nIteration: 1 of 50\n")


def test_a_large_objective_from_a_file_arrives_byte_for_byte() -> None:
    with product([COMPLETE]) as pi:
        large = "".join(f"{number} ü \u2028 \"'{{}}\n" for number in range(12_000))[: 200 * 1024]
        (pi.project / "objective.txt").write_text(large)
        options = ("--agent", "pi", "--every", "1m", "--detach", "--objective-file", "objective.txt")
        assert pi.json("start", *options)["loop"]["objective"] == large
        pi.wait(expect=0)
        assert f"Objective (verbatim): {large}\nIteration: 1 of 50\n" in user_texts(pi.requests[0])[0]


ENVELOPE = """\
[loop iteration]
Objective (verbatim): watch
Iteration: 1 of 7
Calendar time elapsed: 0s
Time to deadline: 2h
Rhythm: auto (range 1s..30m)
Last decision/summary/evidence: none

Re-evaluate the objective against the current state. Do not use loop polling for a background process
that the harness already observes. The evidence must cite observed state, a command run or a reference
consulted. End by calling loop_control as your last action.
With continue, nextDelay is mandatory and must lie in the range."""

SOBRE = """\
[loop iteration]
Objetivo (verbatim): watch
Iteração: 1 de 7
Tempo de calendário decorrido: 0s
Tempo até o prazo: 2h
Ritmo: auto (faixa 1s..30m)
Última decisão/resumo/evidência: nenhuma

Reavalie o objetivo com o estado atual. Não use polling do loop para um processo
background que o harness já observa. A evidência deve citar estado observado, comando executado ou
referência consultada. Termine chamando loop_control como sua última ação.
Com continue, nextDelay é obrigatório e deve estar dentro da faixa."""


def test_the_envelope_in_each_language() -> None:
    options = ("--for", "2h", "--max-iterations", "7", "--max-delay", "30m")
    with product([COMPLETE, COMPLETE]) as pi:
        for language, text in (("en", ENVELOPE), ("pt", SOBRE)):
            pi.configure(f'[envelope]\nlanguage = "{language}"\n')
            pi.begin(*options, objective="watch")
            pi.wait(expect=0)
            # A few milliseconds have gone since the start; seconds, where the machine is slow.
            came = user_texts(pi.requests[-1])[-1]
            came = re.sub(r": \d{1,2}s\n", ": 0s\n", came, count=1)
            assert re.sub(r": 1h59m\d{1,2}s\n", ": 2h\n", came, count=1) == text


def test_pi_is_the_agent_where_none_is_named() -> None:
    with product([COMPLETE]) as pi:
        assert pi.json("start", "--every", "1m", "--detach", "obj")["session"]["agent"] == "pi"
        pi.wait(expect=0)


def test_keys_and_tokens_stay_out_of_files_and_arguments() -> None:
    """The key is in env_file, the token of the extension's socket is made by the adapter."""
    key = "sk-proj-NEVERSTORED0123456789"
    with product([Reply(tools=[bash("env > env.txt; sleep 1")]), Reply(tools=[decision("block")])]) as pi:
        env_file = pi.root / "keys.env"
        env_file.write_text(f"FAKE_KEY={key}\n")
        env_file.chmod(0o600)
        models = pi.agent_dir / "models.json"
        models.write_text(models.read_text().replace("fake-key", "$FAKE_KEY"))
        pi.configure(f'[agents.pi]\nenv_file = "{env_file}"\n')
        pi.begin()
        pi.server.wait_for_requests(1)
        setup = pi.the_pi().environ()["LOOPSUP_PI_SETUP"]
        token = setup.split('"token": "')[1].split('"')[0]
        assert len(token) == 32
        secrets = (key, token)
        shown = [word for process in psutil.process_iter() for word in arguments(process)]
        assert [word for word in shown if any(secret in word for secret in secrets)] == []
        pi.wait(expect=11)
        tool_env = (pi.project / "env.txt").read_text()
        assert token not in tool_env
        assert "LOOPSUP_AGENT=1" in tool_env
        pi.act("close")
        searched = [path for top in (pi.home, pi.agent_dir / "sessions") for path in top.rglob("*") if path.is_file()]
        assert {"session.toml", "journal.jsonl", "events.jsonl", "supervisor.log"} <= {p.name for p in searched}
        assert [p for p in searched if any(secret.encode() in p.read_bytes() for secret in secrets)] == []


def arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_key_among_the_arguments_is_warned_of_without_repeating_it() -> None:
    with product([COMPLETE]) as pi:
        words = ("--provider", "fake", "--model", "fake-1", "--api-key", "sk-proj-ABCDEFGHIJKLMNOP0123")
        ran = pi.act("start", "--agent", "pi", "--every", "1m", "--detach", "obj", "--", *words)
        assert "looks like a key" in ran.err
        assert "ABCDEFGHIJKLMNOP0123" not in ran.err + ran.out
        pi.wait(expect=0)
