"""Starting a supervisor: as a process of its own that outlives this one.

Rules: the child gets its own session (no terminal's signal reaches it), one launch request on standard
input and one pipe to answer on; its output goes to the session's supervisor.log. It never finds modules
in the directory it is started in (`-P`): an agent may have written a `json.py` there. Whoever gives up
waiting (Ctrl-C, no answer) ends the child, so that nothing is left half started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import loopsup
from loopsup.errors import SupervisorGoneError
from loopsup.wire.control import MAX_LINE, Launch, Response, decode_response, encode_launch

READY_TIMEOUT_S = 90.0  # an agent CLI may unpack itself at its first start; a slow disk gets the rest
END_GRACE_S = 15.0  # for a child that is told to end: the whole ladder for its agent, and a little
LOG_NAME = "supervisor.log"
CHUNK = 64 * 1024


def spawn(
    launch: Launch, folder: Path, *, timeout_s: float = READY_TIMEOUT_S, command: tuple[str, ...] | None = None
) -> Response:
    """Start a supervisor for the session in `folder` and wait for its answer; its error is raised.

    `command`: the executable and its arguments instead of our own (for tests).
    """
    log = _open_log(folder / LOG_NAME)
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryFile() as request:  # a file, not a pipe: a child that never reads cannot hang us
            request.write(encode_launch(launch))
            request.seek(0)
            child = subprocess.Popen(
                [*(command or own_command()), "supervise", "--ready-fd", str(writing)],
                stdin=request,
                stdout=log,
                stderr=log,
                env=own_environment(os.environ),
                pass_fds=(writing,),
                start_new_session=True,
            )
    except OSError as error:
        os.close(reading)
        raise SupervisorGoneError(f"the supervisor cannot be started: {error.strerror}") from error
    finally:
        os.close(writing)
        os.close(log)
    try:
        response = _first_answer(child, reading, folder / LOG_NAME, timeout_s)
    except BaseException:
        _end(child)
        raise
    finally:
        os.close(reading)
    child.returncode = 0  # it is meant to outlive us: no "still running" warning, no waiting
    return response


def own_command() -> tuple[str, ...]:
    """How loopsup runs itself."""
    return (sys.executable, "-P", "-m", "loopsup")


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, with our own folder on PYTHONPATH where `-P` would otherwise hide it.

    That is only so in a checkout run as `python -m loopsup`; an installation needs nothing.
    """
    root = str(Path(loopsup.__file__).resolve().parent.parent)
    paths = sys.path if sys.flags.safe_path else sys.path[1:]
    if any(path and str(Path(path).resolve()) == root for path in paths):
        return dict(env)
    before = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{root}{os.pathsep}{before}" if before else root}


def _open_log(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise SupervisorGoneError(
            f"the supervisor cannot be started: {path} cannot be opened ({error.strerror})"
        ) from error


def _first_answer(child: subprocess.Popen[bytes], reading: int, log: Path, timeout_s: float) -> Response:
    line = _read_line(reading, timeout_s)
    if line is None:
        raise SupervisorGoneError(
            f"the supervisor was not ready within {timeout_s:g} s and has been ended; {log} may say why"
        )
    if not line:
        raise SupervisorGoneError(f"the supervisor ended before it was ready{_how(child)}; {log} may say why")
    response = decode_response(line)
    if response.error is not None:
        raise response.error
    return response


def _read_line(reading: int, timeout_s: float) -> bytes | None:
    """The line; empty if the other end closed without one; None if time ran out."""
    from loopsup.clock import SystemClock

    clock = SystemClock()
    deadline = clock.now().mono + int(timeout_s * 1000)
    data = bytearray()
    while not data.endswith(b"\n"):
        left = deadline - clock.now().mono
        if left <= 0 or not select.select([reading], [], [], left / 1000)[0]:
            return None
        chunk = os.read(reading, CHUNK)
        if not chunk or len(data) > MAX_LINE:
            return b""
        data += chunk
    return bytes(data)


def _how(child: subprocess.Popen[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return f" (exit status {child.wait(timeout=1)})"
    return ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """It closes its session on TERM; KILL is for one that does not."""
    try:
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=END_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
