"""The hidden verb: whatever happens, whoever waits gets one answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from loopsup.errors import LoopsupError
from loopsup.wire.control import Launch, decode_response, encode_launch

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("stdin", [b"", b"\n", b"rubbish\n", b'{"v":1}\n'])
def test_rubbish_is_answered_with_a_usage_error(stdin: bytes) -> None:
    code, error = answer(stdin)
    assert error is not None
    assert (code, error.exit) == (2, 2)


def test_a_session_that_is_not_there_is_answered_too() -> None:
    code, error = answer(encode_launch(Launch("none", "reopen", None)))
    assert code != 0
    assert error is not None


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
