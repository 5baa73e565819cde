"""The blocking side of the control socket: one request, one response, or a stream of `follow` lines.

Rules: the socket and the process behind it must be the user's own; every line is bounded; a supervisor
that does not answer a `ping` within `BUSY_TIMEOUT_S` is not responding (SupervisorGoneError), and then
the request itself is never sent. No asyncio here: this is what every cheap command imports.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loopsup.errors import RefusedError, SupervisorGoneError
from loopsup.wire.control import (
    ANSWER_TIMEOUT_S,
    BUSY_TIMEOUT_S,
    MAX_LINE,
    Request,
    Response,
    decode_response,
    encode_request,
)

REQUEST_TIMEOUT_S = 30.0  # a pause or stop is one fsync; a disk that takes longer than this is broken
AGENT_TIMEOUT_S = 150.0  # start, resume and say may first bring the agent up, close and reload take it down
CHUNK = 64 * 1024
_SLOW = frozenset({"start", "resume", "say", "close", "abort", "answer", "reload"})
_NOBODY = (ConnectionRefusedError, FileNotFoundError)
_ENDLESS = frozenset({"wait", "follow", "terminal"})


class UnreachableError(SupervisorGoneError):
    """Nobody answered at all: the request was certainly not carried out, and may be tried another way."""


class NobodyListensError(UnreachableError):
    """There is no socket, or nobody at it: its supervisor is on its way up or down, or somebody removed the file."""


class NoAnswerError(SupervisorGoneError):
    """The request was sent and time ran out: nobody can say yet what becomes of it."""


class WentAwayError(SupervisorGoneError):
    """The connection ended before the answer: the supervisor died, closes, or is restarting."""


class Connection:
    """One connection to a supervisor. A context manager."""

    def __init__(self, path: Path, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        _check_owner(path)
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(os.fspath(path))
            _check_peer(self._socket)
        except OSError as error:
            self._socket.close()
            kind = NobodyListensError if isinstance(error, _NOBODY) else UnreachableError
            raise kind(f"the supervisor does not answer at {path}: {_reason(error)}") from error
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`; look at `buffered` first."""
        return self._socket.fileno()

    @property
    def buffered(self) -> bool:
        """A whole line has already been read."""
        return b"\n" in self._buffer

    def send(self, request: Request) -> None:
        self.send_line(encode_request(request))

    def send_line(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise WentAwayError(f"the supervisor went away: {_reason(error)}") from error

    def read_line(self, timeout_s: float | None) -> bytes | None:
        """The next line without its LF; None at the end. TimeoutError after `timeout_s` without any data."""
        self._socket.settimeout(timeout_s)
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE:
                raise SupervisorGoneError("the supervisor sent a line without end; is something else on its socket?")
            data = self._receive()
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def response(self, timeout_s: float | None) -> Response:
        """The response to the request sent; an error response is raised as the error it stands for."""
        try:
            line = self.read_line(timeout_s)
        except TimeoutError as error:
            raise NoAnswerError(f"the supervisor did not answer within {timeout_s:g} s") from error
        if line is None:
            raise WentAwayError("the supervisor went away before it answered")
        response = decode_response(line)
        if response.error is not None:
            raise response.error
        return response

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(CHUNK)
        except TimeoutError:
            raise
        except OSError as error:  # reset by a supervisor that was killed: the same as its end
            if isinstance(error, ConnectionError):
                return b""
            raise WentAwayError(f"the supervisor went away: {_reason(error)}") from error


def request(path: Path, what: Request, timeout_s: float | None = None) -> Response:
    """Ask the supervisor at `path`. `timeout_s` None: what this verb may take (for ever for `wait`).

    UnreachableError: nobody there, nothing sent. WentAwayError: it went away before it answered.
    Any other LoopsupError: the supervisor's refusal.
    """
    if what.verb not in ("ping", "status", "decide"):  # an agent's decision is worth the wait for a busy supervisor
        ping(path, None if timeout_s is None else min(BUSY_TIMEOUT_S, max(timeout_s, ANSWER_TIMEOUT_S)))
    with Connection(path) as connection:
        connection.send(what)
        return connection.response(_patience(what) if timeout_s is None else timeout_s)


def ping(path: Path, timeout_s: float | None = None) -> None:
    """UnreachableError unless the supervisor answers within `timeout_s` (None: `BUSY_TIMEOUT_S`)."""
    try:
        with Connection(path) as connection:
            connection.send(Request("ping"))
            connection.response(BUSY_TIMEOUT_S if timeout_s is None else timeout_s)
    except UnreachableError:
        raise
    except SupervisorGoneError as error:
        raise UnreachableError(error.message) from error


def follow(path: Path, since: int | None = None) -> Iterator[dict[str, Any]]:
    """The objects of a `follow` stream, the response's status first (as `{"status": …}`), until it ends.

    The end without a `closed` object means that the supervisor died.
    """
    import json

    ping(path)
    with Connection(path) as connection:
        connection.send(Request("follow", {} if since is None else {"since": since}))
        first = connection.response(BUSY_TIMEOUT_S)
        if first.status is not None:
            yield {"status": dict(first.status)}
        while (line := connection.read_line(None)) is not None:
            yield json.loads(line)


def _patience(what: Request) -> float | None:
    if what.verb in _ENDLESS or (what.verb == "say" and what.args.get("wait")):
        return None
    if what.verb in ("ping", "status"):
        return ANSWER_TIMEOUT_S
    return AGENT_TIMEOUT_S if what.verb in _SLOW else REQUEST_TIMEOUT_S


def _check_owner(path: Path) -> None:
    """The file must be a socket of ours: in /tmp somebody else may have placed one."""
    try:
        found = path.lstat()
    except OSError as error:
        raise NobodyListensError(f"the supervisor's socket {path} is not there: {_reason(error)}") from error
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise RefusedError(f"{path} is not a socket of this user; nothing was sent to it, remove it and try again")


def _check_peer(connected: socket.socket) -> None:
    """The process behind it must be ours too (or cannot be asked, on a system without credentials)."""
    if (uid := _peer_uid(connected)) is not None and uid != os.geteuid():
        raise RefusedError(f"the process behind the socket belongs to user {uid}; nothing was sent to it")


def _peer_uid(connected: socket.socket) -> int | None:
    if hasattr(socket, "SO_PEERCRED"):
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", raw)[1])
    if hasattr(socket, "LOCAL_PEERCRED"):  # macOS, BSD: struct xucred begins with version and uid
        raw = connected.getsockopt(0, socket.LOCAL_PEERCRED, struct.calcsize("2I") + 68)
        return int(struct.unpack_from("2I", raw)[1])
    return None


def _reason(error: OSError) -> str:
    return error.strerror or "no answer in time" if not isinstance(error, TimeoutError) else "no answer in time"
