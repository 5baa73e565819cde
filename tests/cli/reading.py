"""A session on disk with a journal, events and, where wanted, an owner and a scripted supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopsup.core import events as ev
from loopsup.core.model import Fixed, Loop, Moment, Policy
from loopsup.core.step import advance
from loopsup.store import folders
from loopsup.store.eventlog import EventWriter
from loopsup.store.home import Home, find_home
from loopsup.store.identity import Identity
from loopsup.store.journal import JournalAppender
from loopsup.store.lock import SessionLock
from loopsup.wire.control import Response, decode_request, encode_response, follow_line
from loopsup.wire.status import SessionFacts, status_object

T0 = 1_791_590_400_000  # 2026-10-10T00:00:00.000Z
MINUTE = 60_000


class Made:
    """One session, made as `start` makes it."""

    def __init__(self, name: str, cwd: Path, home: Home | None = None) -> None:
        self.home = find_home() if home is None else home
        self.home.ensure()
        self.identity = Identity(name, f"id-{name}", "demo", str(cwd), str(self.home.new_socket()), T0)
        self.folder = folders.create(self.home, self.identity)
        self.loop: Loop | None = None

    def start(self, *, at: int = 0, objective: str = "make it green") -> Made:
        """A loop whose first iteration runs."""
        return self.tell(at, ev.Start("l1", objective, Policy(Fixed(10 * MINUTE)), None, idle=True))

    def tell(self, at: int, *events: ev.Event) -> Made:
        now = Moment(T0 + at, at)
        with JournalAppender.open(self.folder) as journal:
            for event in events:
                for step in advance(self.loop, event, now):
                    if step.loop != self.loop:
                        self.loop = step.loop
                        journal.append(now, event, step.loop)
        return self

    def decide(self, decision: str, at: int) -> Made:
        """End the iteration under way with a decision."""
        stamp = self.loop.stamp() if self.loop is not None else None
        assert stamp is not None
        arguments = {"decision": decision, "summary": "all green", "evidence": "ci: 12 passed"}
        self.tell(at, ev.HandoverAccepted(stamp), ev.DecisionCalled(stamp, arguments))
        return self.tell(at, ev.IterationSettled(stamp, idle=True, turns=1))

    def event(self, kind: str, data: Mapping[str, Any], *, at: int = 0, **more: Any) -> Made:
        with EventWriter.open(self.folder) as log:
            log.append(T0 + at, kind, data, **more)
        return self

    def status(self, *, alive: bool = True) -> dict[str, Any]:
        """What its supervisor would say."""
        known = self.identity
        facts = SessionFacts(known.name, known.id, known.agent, None, None, known.cwd, alive, alive, os.getpid())
        return status_object(facts, self.loop, Moment(T0, 0))

    @contextlib.contextmanager
    def owned(self, *lines: Mapping[str, Any], stay: bool = False) -> Iterator[Supervisor]:
        """Held by a supervisor that answers `status` and sends `lines` to a follower, then hangs up (or stays)."""
        lock = SessionLock.acquire(self.folder)
        supervisor = Supervisor(Path(self.identity.socket), self.status(), lines, stay=stay)
        try:
            yield supervisor
        finally:
            supervisor.close()
            lock.release()


class Supervisor:
    """A thread behind the session's socket."""

    def __init__(
        self, path: Path, status: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], *, stay: bool
    ) -> None:
        self._status, self._lines, self._stay = status, lines, stay
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(16)
        self._path = path
        self.verbs: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError), connection.makefile("rb") as incoming:
                    verb = decode_request(incoming.readline()).verb
                    self.verbs.append(verb)
                    connection.sendall(encode_response(Response(self._status)))
                    if verb == "follow":
                        for line in self._lines:
                            ((key, value),) = line.items()
                            connection.sendall(follow_line(key, value))
                        if self._stay:
                            incoming.readline()  # until the follower leaves


def json_lines(text: str) -> list[dict[str, Any]]:
    """What `--json` printed."""
    return [json.loads(line) for line in text.split("\n") if line]


def event(seq: int, kind: str, data: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An event object as a supervisor sends it."""
    return {"v": 1, "seq": seq, "at": "2026-10-10T00:00:01.000Z", "type": kind, **more, "data": dict(data)}
