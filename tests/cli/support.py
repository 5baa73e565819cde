"""A scripted supervisor: a thread behind a real Unix socket that speaks the control protocol."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from loopsup.wire.control import Request, Response, decode_request, encode_response

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
        self._thread.join(5)
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
            request = decode_request(lines.readline())
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
