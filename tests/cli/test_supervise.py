"""The hidden verb: whatever happens, whoever waits gets one answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from loopsup.cli import supervise
from loopsup.errors import LoopsupError, StorageError
from loopsup.wire.control import Launch, decode_response, encode_launch
from tests.cli.conftest import Run


def answer(stdin: bytes) -> tuple[int, LoopsupError | None]:
    """Exit code and the error answered on the ready pipe."""
    reading, writing = os.pipe()
    done = subprocess.run(
        [sys.executable, "-m", "loopsup", "supervise", "--ready-fd", str(writing)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=stdin,
        pass_fds=(writing,),
        capture_output=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        line = pipe.read()
    assert line.count(b"\n") == 1
    return done.returncode, decode_response(line).error


@pytest.mark.slow
@pytest.mark.parametrize("stdin", [b"", b"\n", b"rubbish\n", b'{"v":1}\n'])
def test_rubbish_is_answered_with_a_usage_error(stdin: bytes) -> None:
    code, error = answer(stdin)
    assert error is not None
    assert (code, error.exit) == (2, 2)


@pytest.mark.slow
def test_a_session_that_is_not_there_is_answered_too() -> None:
    code, error = answer(encode_launch(Launch("none", "reopen", None)))
    assert code != 0
    assert error is not None


@pytest.mark.slow
def test_a_descriptor_that_is_not_open_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loopsup", "supervise", "--ready-fd", "99"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--ready-fd 99" in done.stderr


@pytest.mark.parametrize("defect", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_of_a_reloaded_foreground_is_told_as_it_was_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, as_json: bool, defect: bool
) -> None:
    """Its arguments are no longer those that were typed; what was asked for is in its launch."""
    from loopsup.shell import main

    def serve(*_: object) -> int:
        raise RuntimeError("a bug") if defect else StorageError("the disk is full")

    monkeypatch.setattr(main, "supervise", serve)
    launch = Launch("work", "reload", None, foreground=True, as_json=as_json)
    monkeypatch.setattr(supervise, "_read_launch", lambda: launch)
    told = run("supervise", "--ready-fd", str(os.open(os.devnull, os.O_WRONLY)))
    message = "internal error in the supervisor (RuntimeError)" if defect else "the disk is full"
    assert told.code == 1
    if as_json:
        kind = LoopsupError.kind if defect else StorageError.kind
        assert told.json == {"version": 1, "error": {"exit": 1, "kind": kind, "message": message}}
        assert message not in told.err
    else:
        assert told.out == ""
        assert told.err.endswith(f"loopsup: {message}\n")


def test_a_reader_that_left_a_reloaded_foreground_is_no_defect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from loopsup.shell import main

    def gone(_: Launch) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(main, "supervise", lambda *_: 0)
    monkeypatch.setattr(supervise, "_read_launch", lambda: Launch("work", "reload", None, foreground=True))
    monkeypatch.setattr(supervise, "show_end", gone)
    told = run("supervise", "--ready-fd", str(os.open(os.devnull, os.O_WRONLY)))
    assert (told.code, told.err) == (0, "")
