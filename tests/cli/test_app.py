"""The command line's frame: how words become a verb, and how every outcome leaves the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopsup import __version__
from loopsup.cli import app
from loopsup.cli import status as status_module
from loopsup.errors import LoopsupError
from tests.cli.conftest import Run
from tests.cli.support import Sessions, a_loop

PAST_A_PIPE = 3 * 65_536  # more than a pipe holds: the answer waits in mid-write
CHEAP = ("status", "pause", "resume", "stop", "update", "abort", "wait", "say", "answer", "close", "ls", "history")


def python(*argv: str, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "no command given; see `loopsup --help`"),
        (["strat"], "no such command 'strat'"),
        (["--bogus"], "no such option: --bogus"),
        (["--session", "status"], "options stand after the command: loopsup status --session"),
        (["status", "--bogus"], "no such option: --bogus; see `loopsup status --help`"),
        (["status", "--sesion", "x"], "(Possible options: --json, --session)"),
        (["heartbeat"], "missing argument 'ACTION'; choose from: start, status, pause, resume, stop; see `"),
        (["status", "--session"], "option '--session' requires an argument; see `loopsup status --help`"),
        (["status", "--json=1"], "does not take a value"),
        (["status", "--session", "a", "--session=b"], "the option --session is given more than once"),
        (["status", "--session", ".x"], "is no session name"),
        (["status", "--session", "a/b"], "is no session name"),
        (["status", "--session", "x" * 65], "is no session name"),
        (["status", "--session", ""], "is no session name"),
        *[([verb, "4711"], "'4711' is one argument too many") for verb in ("status", "pause", "resume", "stop")],
        *[([verb, "4711"], "'4711' is one argument too many") for verb in ("abort", "wait", "close", "ls")],
        (["update", "4711"], "update takes no objective"),
        (["update", "--after", "5m"], "update has no --after"),
        (["update"], "update needs at least one of --every"),
        (["update", "--every", "tenmin"], "or 2d, or say auto"),
        (["update", "--every", "500ms"], "or 2d, at least 1s"),
        (
            ["update", "--misfire", "never"],
            "--misfire: 'never' is not a duration; write it like 90s, 10m, 1h30m or 2d, ",
        ),
        (["update", "--misfire", "never"], "or say once or skip"),
        (["update", "--every", "10", "--for", "0s"], "--every: '10' is not a duration"),
        (["update", "--every", "10", "--for", "0s"], "--for: '0s' is zero"),
        (["wait", "--timeout", "5"], "--timeout: '5' is not a duration"),
        (["say"], "say what?"),
        (["say", "two", "words"], "put it in quotes"),
        (["say", "  "], "the text is blank"),
        (["say", os.fsdecode(b"\xff")], "not valid UTF-8"),
        (["say", "--timeout", "5m", "x"], "--timeout is only for --wait"),
        (["answer"], "missing argument 'allow|deny'"),
        (["answer", "yes"], "'yes' is no answer"),
    ],
)
def test_a_wrong_command_line_is_exit_2_in_one_sentence(run: Run, argv: list[str], says: str) -> None:
    result = run(*argv)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("loopsup: ")
    assert says in result.err
    assert result.err.count("\n") == 1


START = ["start", "--every", "10m"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["start", "x"], "--every is missing"),  # L-15
        (START, "the objective is missing"),  # L-16
        ([*START, "  "], "is blank"),
        ([*START, "watch", "the", "CI"], "put it in quotes: 'watch the CI'"),
        ([*START, "--", "-watch", "the CI"], "put it in quotes: '-watch the CI'"),
        ([*START, "x", "--every", "5m"], "--every is given more than once"),
        ([*START, "--after", "auto", "x"], "--after: 'auto' is not a duration"),  # L-22
        ([*START, "--max-iterations", "0", "x"], "--max-iterations"),  # L-09
        ([*START, "--max-iterations", "unlimited", "x"], "--max-iterations"),
        ([*START, "--for", "0s", "x"], "--for: '0s' is zero"),
        (["start", "--every", "59s", "x"], "--every 59s is shorter than --min-delay 1m"),  # L-25
        (["start", "--every", "24h1s", "x"], "is longer than --max-delay"),
        ([*START, "--min-delay", "2h", "--max-delay", "1h", "x"], "--min-delay 2h is longer than --max-delay 1h"),
        ([*START, "--after", "24h", "x"], "--after 24h leaves no time"),  # D-01
        ([*START, "--detach", "--foreground", "x"], "exclude each other"),
        ([*START, "--keep", "x"], "--keep is only for --foreground"),
        (
            [
                *START,
                "--objective-file",
                "/nonexistent",
            ],
            "cannot read the objective",
        ),
        ([*START, "--objective-file", "f", "x"], "given twice"),
        ([*START, "--session", ".x", "y"], "is no session name"),
        ([*START, "--driver", "cron", "x"], "is not one of"),
        ([*START, "--driver", "tick", "--foreground", "x"], "exclude each other"),
        ([*START, "-fix it"], 'stands after --: loopsup start [OPTIONS] -- "-fix it"'),
        ([*START, "-fix"], "(an objective that starts with - stands after --)"),
        ([*START, "--session", "--", "x"], "option '--session' requires an argument"),
    ],
)
def test_a_wrong_start_is_exit_2_and_nothing_is_made(run: Run, argv: list[str], says: str, tmp_path: Path) -> None:
    result = run(*argv)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert list((tmp_path / "home" / "sessions").glob("[!.]*")) == []


def test_all_faults_of_a_start_are_told_at_once(run: Run) -> None:
    """D-02, in any order of the options."""
    result = run("start", "--keep", "--for", "x", "--max-iterations", "0", "--every", "10", " ")
    for part in ("--for: ", "--max-iterations: ", "--every: ", "is blank", "--keep is only"):
        assert part in result.err
    result = run("start", "--every", "1s", "--after", "48h", "--min-delay", "3h", "--max-delay", "2h", "x")
    for part in ("--every 1s is shorter", "--min-delay 3h is longer", "--after 2d leaves no time"):
        assert part in result.err


@pytest.mark.parametrize(
    ("argv", "exit_code", "kind"),
    [
        (["status", "--bogus", "--json"], 2, "usage"),
        (["status", "--json"], 3, "not_found"),
        (["abort", "--session", "none", "--json"], 3, "not_found"),
        (["status", "--json", "--json"], 2, "usage"),
        (["start", "--json", "x"], 2, "usage"),
        (["say", "--json", "--max-reminders", "3", "x"], 2, "usage"),
    ],
)
def test_with_json_an_error_is_an_object_on_standard_output(
    run: Run, argv: list[str], exit_code: int, kind: str
) -> None:
    result = run(*argv)
    error = result.json["error"]
    assert result.json == {"version": 1, "error": {"exit": exit_code, "kind": kind, "message": error["message"]}}
    assert (result.code, result.err) == (exit_code, "")


def test_json_behind_the_dashes_is_not_ours(run: Run) -> None:
    result = run("start", "--", "--json")
    assert (result.code, result.out) == (2, "")
    assert "--every is missing" in result.err


def test_windows_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["status"], platform="win32") == 6
    assert capsys.readouterr().err == "loopsup: loopsup needs Linux or macOS; on Windows run it inside WSL\n"


def test_no_line_of_the_help_is_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--help").out.splitlines()
    assert len(lines) > len(app.VERBS) - len(app.HIDDEN)
    assert [line for line in lines if line.endswith("...") or len(line) > 80] == [
        "Usage: loopsup [OPTIONS] COMMAND [ARGS]..."
    ]


def test_version_and_help(run: Run) -> None:
    assert run("--version") == type(run("--version"))(0, f"loopsup {__version__}\n", "")
    everything = run("--help")
    assert everything.code == 0
    for verb in app.VERBS:
        assert (f"\n  {verb} " in everything.out) == (verb not in app.HIDDEN), verb
    for verb in app.VERBS:
        assert run(verb, "--help").code == 0, verb


def test_control_characters_in_an_error_are_harmless(run: Run) -> None:
    result = run("status", "--session", "a\x1b[2Jb")
    assert "\x1b" not in result.err


def test_a_defect_is_one_sentence_and_its_traceback_a_private_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*, session: str | None = None) -> int:
        raise ZeroDivisionError("x" * 200_000)

    monkeypatch.setattr(status_module, "status", broken)
    result = run("status")
    log = tmp_path / "home" / "crash.log"
    assert result.code == 1
    assert result.err == f"loopsup: internal error (ZeroDivisionError); the traceback is in {log}, please report it\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.stat().st_size <= 64 * 1024
    monkeypatch.setenv("LOOPSUP_DEBUG", "1")
    assert "Traceback (most recent call last)" in run("status").err


def test_a_crash_log_is_never_written_through_a_symlink(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> int:
        raise ZeroDivisionError

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "crash.log").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(status_module, "status", broken)
    assert "could not be stored" in run("status").err
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), BrokenPipeError()])
def test_an_interrupt_is_130_and_a_reader_that_left_is_quiet(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    def interrupted() -> int:
        raise raised

    monkeypatch.setattr(app, "silence_stdout", lambda: 0)
    monkeypatch.setattr(status_module, "status", interrupted)
    result = run("status")
    assert result == type(result)(130 if isinstance(raised, KeyboardInterrupt) else 0, "", "")


def test_every_error_class_gives_its_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from loopsup.errors import BY_KIND

    for kind, error in BY_KIND.items():

        def refuse(error: type[LoopsupError] = error) -> int:
            raise error("no")

        monkeypatch.setattr(status_module, "status", lambda refuse=refuse: refuse())
        result = run("status")
        assert (result.code, result.err) == (error.exit, "loopsup: no\n"), kind


@pytest.mark.slow
@pytest.mark.parametrize("verb", CHEAP)
def test_a_cheap_verb_imports_nothing_heavy(sessions: Sessions, verb: str) -> None:
    """A `status` costs no more than typer itself."""
    sessions.make(loop=a_loop())
    argv = {"update": [verb, "--for", "48h"], "say": [verb, ""], "answer": [verb, "maybe"]}.get(verb, [verb])
    if verb == "resume":
        argv = [verb, "--session", "none"]  # with one it would start a supervisor
    heavy = ("asyncio", "rich", "psutil", "pydantic", "multiprocessing", "ssl", "loopsup.ports", "loopsup.process")
    code = (
        "import sys\nfrom loopsup.cli.app import run\n"
        f"code = run({argv!r})\nprint('loaded', [m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.stderr.strip().endswith("loaded []"), done.stderr


@pytest.mark.parametrize("argv", [("help",), ("help", "update"), ("update", "--help")])
def test_help_is_as_wide_as_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    result = run(*argv)
    assert (result.code, result.err) == (0, "")
    assert 30 < max(map(len, result.out.split("\n"))) <= 44
    assert ("horizon" in result.out, "[words]" in result.out, "default 24h" in result.out) == (False, False, False)


def test_a_deleted_directory_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for argv in (["status"], ["start", "--every", "10m", "x"]):
        result = run(*argv)
        assert (result.code, result.err) == (
            2,
            "loopsup: the directory you are in no longer exists; go into another one with cd\n",
        )


def test_a_state_home_that_is_a_file_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    result = run("ls")
    assert (result.code, result.out) == (1, "")
    assert "home is not a directory" in result.err


def test_the_variable_is_named_where_it_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_SESSION", "typo")
    result = run("status")
    assert result.err == "loopsup: there is no session 'typo'; see: loopsup ls (LOOPSUP_SESSION names it)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        (">&-", b"loopsup: standard output is closed, so there is nowhere to answer; use >/dev/null instead\n"),
        (">/dev/full", b"loopsup: cannot write to standard output: No space left on device\n"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_takes_nothing_is_one_sentence(
    sessions: Sessions, redirection: str, says: bytes, unbuffered: str
) -> None:
    if redirection.endswith("full") and not Path("/dev/full").exists():
        pytest.skip("/dev/full is a device of Linux; nothing else here refuses every byte that is written")
    sessions.make(loop=a_loop())
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": unbuffered}
    for verb in ("status", "status --json"):
        line = f'"$0" -m loopsup {verb} {redirection}'
        done = subprocess.run(
            ["/bin/sh", "-c", line, sys.executable], env=env, stderr=subprocess.PIPE, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (1, says), verb


@pytest.mark.slow
def test_output_into_a_closed_pipe_is_quiet(sessions: Sessions) -> None:
    sessions.make(loop=a_loop())
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "loopsup", "status"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_text_the_terminal_cannot_show_is_escaped(sessions: Sessions) -> None:
    sessions.make(loop=a_loop(objective="früh \U0001f600 \ud800"))
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = python("-m", "loopsup", "status", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    as_json = python("-m", "loopsup", "status", "--json", env=env)
    assert json.loads(as_json.stdout)["loop"]["objective"] == "früh \U0001f600 \ud800"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_long_answer_is_whole_though_the_command_was_stopped_in_it(sessions: Sessions, unbuffered: str) -> None:
    sessions.make(loop=a_loop(objective="x" * PAST_A_PIPE))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": unbuffered}
    argv = [sys.executable, "-m", "loopsup", "status", "--json"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        begun = process.stdout.read(1)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGCONT)
        answer = begun + process.stdout.read()
        assert process.wait(timeout=60) == 0
    assert len(json.loads(answer)["loop"]["objective"]) == PAST_A_PIPE
