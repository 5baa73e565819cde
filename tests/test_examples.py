"""The examples, run as their READMEs say, with the demo agent."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopsup.store.lock import CREATION_RETRY_S, CREATION_TRIES
from tests.support import cli_env

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


class Shell:
    """Runs command lines in a copy of one example."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env

    def __call__(self, line: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-uc", line],
            cwd=self.folder,
            env={**self.env, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def status(self, *options: str) -> dict[str, object]:
        loop = json.loads(self(" ".join(["loopsup", "status", "--json", *options])).stdout)["loop"]
        assert isinstance(loop, dict)
        return loop


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    example = tmp_path / request.param
    shutil.copytree(ROOT / "examples" / request.param, example)
    with cli_env.sandbox(tmp_path) as env:
        yield Shell(example, env)


@pytest.mark.parametrize("shell", ["watch-ci"], indirect=True)
@pytest.mark.parametrize(("outcome", "code", "words"), [("passed", 0, "green"), ("failed", 10, "red")])
def test_a_script_acts_on_the_exit_code_of_wait(shell: Shell, outcome: str, code: int, words: str) -> None:
    (shell.folder / "ci.status").write_text("queued\n")  # there before anybody looks
    done = shell(f"./fake-ci ci.status {outcome} & ./watch.sh ci.status")
    assert (done.returncode, done.stdout.splitlines()[-1].split(":")[0]) == (code, words), done.stderr


@pytest.mark.parametrize("shell", ["watch-ci"], indirect=True)
def test_a_second_file_is_watched_beside_the_first(shell: Shell) -> None:
    (shell.folder / "a.status").write_text("passed\n")
    (shell.folder / "b.status").write_text("failed\n")
    assert [shell(f"./watch.sh {name}.status").returncode for name in ("a", "b", "a")] == [0, 10, 0]


@pytest.mark.parametrize("shell", ["watch-ci"], indirect=True)
def test_make_demo_shows_each_iteration_and_completes(shell: Shell) -> None:
    done = shell("./demo.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    following, history = done.stdout.split("$ loopsup history")
    assert "completed" in following
    # One look at each state, however slow the machine is; a demo much longer than that would bore.
    assert 3 <= len([line for line in history.splitlines() if "continue" in line]) <= 6
    assert "complete" in history.splitlines()[-1]
    assert cli_env.session_names(Path(shell.env["LOOPSUP_HOME"])) == []  # it keeps its own home, and removes it


@pytest.mark.parametrize("shell", ["cron"], indirect=True)
def test_cron_starts_one_loop_and_is_quiet_while_it_works(shell: Shell) -> None:
    fast = {"EVERY": "1s", "MIN_DELAY": "1s"}
    (shell.folder / "nightly.status").write_text("running\n")
    began = time.monotonic()
    assert shell("./keep-looping.sh", **fast).returncode == 0
    took = time.monotonic() - began
    assert took < CREATION_TRIES * CREATION_RETRY_S  # a new name is not waited for: that would take all of it
    first = shell.status("--session", "nightly")
    again = shell("./keep-looping.sh", **fast)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert shell.status("--session", "nightly")["id"] == first["id"]

    (shell.folder / "nightly.status").write_text("passed\n")
    assert shell("loopsup wait --session nightly --timeout 100s").returncode == 0
    (shell.folder / "nightly.status").write_text("needs-human\n")
    assert shell("./keep-looping.sh", **fast).returncode == 0
    assert shell("loopsup wait --session nightly --timeout 100s").returncode == 11
    second = shell.status("--session", "nightly")
    assert second["id"] != first["id"]

    mailed = shell("./keep-looping.sh", **fast)
    assert (mailed.returncode, mailed.stdout) == (11, "")
    assert "blocked" in mailed.stderr
    assert shell.status("--session", "nightly")["id"] == second["id"]


@pytest.mark.parametrize("shell", ["pty"], indirect=True)
def test_the_terminal_program_is_typed_to_until_it_decides(shell: Shell) -> None:
    (shell.folder / "ci.status").write_text("running\n")
    started = shell(
        "loopsup start --detach --agent pty --min-delay 1s --every 2s 'watch ci.status' "
        "-- --busy '^working' ./tiny_tui.py ci.status"
    )
    assert started.returncode == 0, started.stderr
    deadline = time.monotonic() + 100
    while (loop := shell.status())["lastDecision"] is None and time.monotonic() < deadline:
        time.sleep(0.2)
    first = loop["lastDecision"]
    assert isinstance(first, dict)
    assert (first["decision"], first["summary"], first["evidence"]) == ("continue", "running", "cat ci.status")

    (shell.folder / "ci.status").write_text("passed\n")
    assert shell("loopsup wait --timeout 100s").returncode == 0
    assert (done := shell.status())["protocolRetryCount"] == 0, done


def test_the_cron_line_calls_the_script() -> None:
    (line,) = [
        row for row in (ROOT / "examples" / "cron" / "crontab").read_text().splitlines() if not row.startswith("#")
    ]
    *when, command = line.split(None, 5)
    assert (when, command) == (["*/15", "*", "*", "*", "*"], 'cd "$HOME/project" && "$HOME/bin/keep-looping.sh"')
