"""Scripted supervisors (a thread behind a real Unix socket) and sessions on disk."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loopsup.clock import SystemClock
from loopsup.core.events import Ticked
from loopsup.core.model import Fixed, Loop, Phase, Policy, Waiting
from loopsup.store import folders
from loopsup.store.home import find_home
from loopsup.store.identity import Identity, load_identity
from loopsup.store.journal import JournalAppender, read_tail
from loopsup.store.lock import SessionLock
from loopsup.wire.control import Request, Response, decode_request, encode_response
from loopsup.wire.status import SessionFacts, status_object

Answer = Response | bytes | None | Callable[[Request], "Response | bytes | None"]


class FakeSupervisor:
    """Answers by verb. An answer is a Response, raw bytes, None (hang up), or a function of the request."""

    def __init__(self, path: Path, answers: Mapping[str, Answer]) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {"ping": Response(), **answers}
        self.requests: list[Request] = []
        self._held: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def asked(self) -> list[Request]:
        """The requests other than pings."""
        return [request for request in self.requests if request.verb != "ping"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)
        self.path.unlink(missing_ok=True)
        for held in self._held:
            held.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._one(connection)

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as lines:
            line = lines.readline()
            if not line:  # the client left before it asked
                connection.close()
                return
            request = decode_request(line)
            self.requests.append(request)
            answer = self.answers.get(request.verb, HOLD)
            if callable(answer):
                answer = answer(request)
            if answer is HOLD:
                self._held.append(connection)
                return
            if isinstance(answer, Response):
                answer = encode_response(answer)
            if answer is not None:
                connection.sendall(answer)
        connection.close()


HOLD = b"never answered"


@contextlib.contextmanager
def supervisor(path: Path, **answers: Answer) -> Iterator[FakeSupervisor]:
    fake = FakeSupervisor(path, answers)
    try:
        yield fake
    finally:
        fake.close()


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Sessions:
    """Makes sessions on disk, with the loop given, as a supervisor that ended or died would have left them."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.home = find_home()

    def make(
        self, name: str = "work", loop: Loop | None = None, *, cwd: Path | None = None, agent: str = "demo"
    ) -> Path:
        """The folder of a new session."""
        self.home.ensure()
        identity = Identity(
            name=name,
            id=f"id-{name}",
            agent=agent,
            cwd=str(cwd or self.cwd),
            socket=str(self.home.new_socket()),
            created=NOW.wall,
        )
        folder = folders.create(self.home, identity)
        if loop is not None:
            with JournalAppender.open(folder) as journal:
                journal.append(NOW, Ticked(idle=False), loop)
        return folder

    @contextlib.contextmanager
    def live(self, name: str = "work", loop: Loop | None = None, **answers: Answer) -> Iterator[FakeSupervisor]:
        """A session with a scripted supervisor that holds its lock."""
        folder = self.make(name, loop)
        with SessionLock.acquire(folder), supervisor(Path(load_identity(folder).socket), **answers) as fake:
            yield fake

    def loop(self, name: str = "work") -> Loop | None:
        """The state in the journal."""
        return read_tail(self.home.sessions / name).loop

    def journal(self, name: str = "work") -> bytes:
        return (self.home.sessions / name / "journal.jsonl").read_bytes()


NOW = SystemClock().now()


def a_loop(phase: Phase | None = None, **changes: Any) -> Loop:
    """A loop that was started a minute ago, by default waiting for its next wake in ten minutes."""
    started_at = NOW.wall - 60_000
    base = Loop("l1", "watch the CI", Policy(Fixed(600_000)), started_at, phase or Waiting(NOW.plus(600_000)))
    return replace(base, **{"iteration_count": 3, **changes})


def status_of(loop: Loop | None, name: str = "work", *, alive: bool = True) -> dict[str, Any]:
    """The status object a supervisor would answer with."""
    facts = SessionFacts(name, f"id-{name}", "demo", None, None, "/w", alive, alive, 1 if alive else None)
    return status_object(facts, loop, NOW)
