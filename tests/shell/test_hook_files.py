"""The two hooks we ship, executed as the supervisor executes them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from loopsup.clock import SystemClock
from loopsup.shell.hook import HookResult, Limits, run_hook

pytestmark = pytest.mark.slow  # real processes

HOOKS = Path(__file__).resolve().parents[2] / "hooks"
EVENT = {
    "version": 1,
    "status": "blocked",
    "summary": "needs a password",
    "evidence": {"source": "agent", "text": "sudo asked"},
    "objective": "install it",
    "iterationCount": 3,
    "maxIterations": 50,
    "protocolRetryCount": 0,
    "calendarElapsedMs": 1000,
    "deadlineRemainingMs": 1000,
    "session": {"id": "s", "cwd": "/home/me/project"},
    "endedAt": "2026-10-10T00:00:00.000Z",
    "observedAt": "2026-10-10T00:00:00.000Z",
}
PATIENT = Limits(timeout_s=90.0)  # an interpreter starts in a tenth of a second, on a machine that has one to spare
NASTY = '--help\n\x1b[2J\x07"; touch probe; $(touch probe) \u2028 \ud800 <b>bold</b> `touch probe`'


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A PATH with python3 and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    return folder


def run(name: str, event: object, env: dict[str, str]) -> HookResult:
    payload = event if isinstance(event, bytes) else json.dumps(event).encode()
    return asyncio.run(run_hook(str(HOOKS / name), payload, env=env, clock=SystemClock(), limits=PATIENT))


def test_every_hook_is_one_executable_file() -> None:
    found = {path.name: path.stat().st_mode & 0o777 for path in HOOKS.iterdir() if path.name != "__pycache__"}
    assert found == {"append-log": 0o755, "notify-desktop": 0o755}


def test_append_log_appends_one_line_for_each_event(bin_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "new" / "attention.log"
    env = {"PATH": str(bin_dir), "LOOPSUP_HOOK_LOG": str(log)}
    assert run("append-log", EVENT, env).ok
    assert run("append-log", {**EVENT, "summary": NASTY}, env).ok
    assert log.read_bytes().decode().split("\n") == [
        "2026-10-10T00:00:00.000Z blocked after 3/50 in /home/me/project: needs a password",
        "2026-10-10T00:00:00.000Z blocked after 3/50 in /home/me/project: "
        '--help  [2J "; touch probe; $(touch probe)     <b>bold</b> `touch probe`',
        "",
    ]
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "HOME"])
def test_append_log_finds_the_usual_place(bin_dir: Path, tmp_path: Path, variable: str) -> None:
    assert run("append-log", EVENT, {"PATH": str(bin_dir), variable: str(tmp_path)}).ok
    state = tmp_path if variable == "XDG_STATE_HOME" else tmp_path / ".local" / "state"
    assert len((state / "loopsup" / "attention.log").read_text().splitlines()) == 1


def test_append_log_says_what_is_wrong(bin_dir: Path, tmp_path: Path) -> None:
    env = {"PATH": str(bin_dir), "LOOPSUP_HOOK_LOG": str(tmp_path)}
    result = run("append-log", EVENT, env)
    assert (result.exit, result.output) == (1, f"append-log: cannot write {tmp_path}: Is a directory\n")
    result = run("append-log", b"[]", env)
    assert result.exit == 1
    assert result.output.startswith("append-log: standard input is not an attention event: ")


def test_append_log_does_not_follow_a_planted_link(bin_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    result = run("append-log", EVENT, {"PATH": str(bin_dir), "LOOPSUP_HOOK_LOG": str(tmp_path / "log")})
    assert result.exit == 1
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("notifier", ["notify-send", "osascript"])
def test_notify_desktop_hands_the_words_over_as_data(bin_dir: Path, tmp_path: Path, notifier: str) -> None:
    fake = bin_dir / notifier
    fake.write_text(
        f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(tmp_path / 'got')!r}, 'w'))\n"
    )
    fake.chmod(0o755)
    assert run("notify-desktop", {**EVENT, "summary": NASTY}, {"PATH": str(bin_dir)}).ok
    *options, title, body = json.loads((tmp_path / "got").read_text())
    assert title == f"loopsup: blocked in {EVENT['session']['cwd']}"
    if notifier == "notify-send":
        assert options == ["--app-name=loopsup", "--"]
        assert "&lt;b&gt;bold" in body
    else:
        assert options[0] == "-e"
        assert "touch probe" not in options[1]
    assert body.isprintable()
    assert body.startswith("--help  [2J")


def test_notify_desktop_without_a_notifier_says_so(bin_dir: Path) -> None:
    result = run("notify-desktop", EVENT, {"PATH": str(bin_dir)})
    assert (result.exit, result.output) == (
        1,
        "notify-desktop: neither notify-send nor osascript is on PATH; install one (libnotify)\n",
    )


def test_notify_desktop_tells_when_the_notifier_fails(bin_dir: Path) -> None:
    false = shutil.which("false", path=os.environ["PATH"])
    assert false is not None
    (bin_dir / "notify-send").symlink_to(false)
    result = run("notify-desktop", EVENT, {"PATH": str(bin_dir)})
    assert (result.exit, result.output) == (1, "notify-desktop: notify-send ended with status 1\n")
