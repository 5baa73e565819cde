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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import loopsup
from loopsup.clock import mono_ms
from loopsup.errors import SupervisorGoneError
from loopsup.wire.control import MAX_LINE, Launch, Request, Response, decode_invite, decode_response, encode_launch

if TYPE_CHECKING:
    from loopsup.cli.selection import Session

READY_TIMEOUT_S = 90.0  # an agent CLI may unpack itself at its first start; a slow disk gets the rest
END_GRACE_S = 15.0  # for a child that is told to end: the whole ladder for its agent, and a little
OWNED_TIMEOUT_S = 30.0  # taking the lock is the first thing a supervisor does; under load it takes long to get there
OWNED_POLL_S = 0.02  # short against the start of an interpreter
LOG_TAIL = 4 * 1024  # bytes: the last line of a traceback is within them
AGENT_MARK = "LOOPSUP_MARK"  # see shell/leftover.py
LOG_NAME = "supervisor.log"
CHUNK = 64 * 1024


class Starting:
    """A supervisor on its way up, until `answer`. Where either method raises, no process is left."""

    def __init__(self, child: subprocess.Popen[bytes], reading: int, log: Path) -> None:
        self.child, self._reading, self._log = child, reading, log

    def until_owned(self, owned: Callable[[], bool], timeout_s: float = OWNED_TIMEOUT_S) -> None:
        """Return when it holds its session's lock, or has answered or ended, or time is up."""
        give_up = mono_ms() + int(timeout_s * 1000)
        try:
            while not owned() and mono_ms() < give_up:
                if select.select([self._reading], [], [], OWNED_POLL_S)[0]:
                    return
        except BaseException:  # Ctrl-C, or a folder that cannot be looked at
            self.end()
            raise

    def answer(
        self, timeout_s: float = READY_TIMEOUT_S, invited: Callable[[str], None] | None = None, *, leave: bool = True
    ) -> Response:
        """Its response to what it was started for. An error is raised, and then no process is left.

        `invited` gets what an agent that runs already needs to connect, as soon as it is there. `leave`: nobody
        will wait for `child`.
        """
        try:
            response = self._first_answer(timeout_s, invited)
        except BaseException:  # also Ctrl-C
            self.end()
            raise
        if leave:
            self.child.returncode = 0  # it is meant to outlive us: no "still running" warning, no waiting
        os.close(self._reading)
        return response

    def until_over(self, timeout_s: float = END_GRACE_S) -> None:
        """After `answer` with `leave` false: return when the process has ended, or after the grace."""
        try:
            self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:  # somebody keeps the session open
            self.child.returncode = 0  # as in `answer`

    def end(self) -> None:
        """It closes its session on TERM; KILL is for one that does not."""
        os.close(self._reading)
        try:
            self.child.send_signal(signal.SIGTERM)
            self.child.wait(timeout=END_GRACE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _first_answer(self, timeout_s: float, invited: Callable[[str], None] | None) -> Response:
        lines = _Lines(self._reading, timeout_s)
        line = lines.next()
        if line and invited is not None and (text := decode_invite(line)) is not None:
            invited(text)
            line = lines.next()
        if line is None:
            raise SupervisorGoneError(f"the supervisor was not ready within {timeout_s:g} s and has been ended")
        if not line:
            raise SupervisorGoneError(f"the supervisor ended before it was ready{self._how()}")
        response = decode_response(line)
        if response.error is not None:
            raise response.error
        return response

    def _how(self) -> str:
        """Its exit status and the last line it wrote."""
        how = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            how = f" (exit status {self.child.wait(timeout=1)})"
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - LOG_TAIL))
            lines = log.read().decode("utf-8", "replace").strip().split("\n")
            how += f": {lines[-1]}" if lines[-1] else ""
        return how


def begin(launch: Launch, folder: Path, *, command: tuple[str, ...] | None = None) -> Starting:
    """Start a supervisor for the session in `folder`. `command`: the executable instead of our own (for tests)."""
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
    return Starting(child, reading, folder / LOG_NAME)


def reopen(session: Session, first: Request | None, *, allow_all: bool = False) -> Response:
    """Start a supervisor that resumes the conversation of a session that has none."""
    launch = Launch(session.name, "reopen", first, allow_all=allow_all)
    return begin(launch, session.folder).answer()


def own_command() -> tuple[str, ...]:
    """How loopsup runs itself."""
    return (sys.executable, "-P", "-m", "loopsup")


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, with our own folder on PYTHONPATH where `-P` would otherwise hide it.

    That is only so in a checkout run as `python -m loopsup`; an installation needs nothing. A session that an
    agent starts is none of that agent's tools: it must not end with it.
    """
    env = {key: value for key, value in env.items() if key != AGENT_MARK}
    root = str(Path(loopsup.__file__).resolve().parent.parent)
    paths = sys.path if sys.flags.safe_path else sys.path[1:]
    if any(path and str(Path(path).resolve()) == root for path in paths):
        return env
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


class _Lines:
    """The lines of one descriptor, until time runs out."""

    def __init__(self, reading: int, timeout_s: float) -> None:
        self._reading = reading
        self._deadline = mono_ms() + int(timeout_s * 1000)
        self._data = bytearray()

    def next(self) -> bytes | None:
        """The next line; empty if the other end closed without one; None if time ran out."""
        while b"\n" not in self._data:
            left = self._deadline - mono_ms()
            if left <= 0 or not select.select([self._reading], [], [], left / 1000)[0]:
                return None
            chunk = os.read(self._reading, CHUNK)
            if not chunk or len(self._data) > MAX_LINE:
                return b""
            self._data += chunk
        line, _, self._data = self._data.partition(b"\n")
        return bytes(line) + b"\n"
