"""The blocking client: owner checks, bounds, and what each kind of silence becomes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from loopsup import client
from loopsup.errors import RefusedError, SupervisorGoneError, UsageError
from loopsup.wire.control import Request, Response, encode_response, follow_line
from tests.cli.support import HOLD, supervisor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def test_a_request_gets_its_response(path: Path) -> None:
    with supervisor(path, pause=Response({"version": 1}, "paused", ("a warning",))) as fake:
        response = client.request(path, Request("pause"))
    assert response == Response({"version": 1}, "paused", ("a warning",))
    assert fake.requests == [Request("ping"), Request("pause")]


def test_a_refusal_is_raised_as_the_error_it_stands_for(path: Path) -> None:
    with supervisor(path, stop=Response(error=RefusedError("it has ended"))), pytest.raises(RefusedError) as caught:
        client.request(path, Request("stop"))
    assert (caught.value.exit, caught.value.message) == (4, "it has ended")


def test_nobody_there_means_nothing_was_sent(path: Path) -> None:
    with pytest.raises(client.UnreachableError, match="is not there"):
        client.request(path, Request("pause"))


def test_a_dead_socket_means_nothing_was_sent(path: Path) -> None:
    with supervisor(path) as fake:
        pass
    assert fake.requests == []
    import socket

    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    with pytest.raises(client.UnreachableError, match="does not answer"):
        client.request(path, Request("pause"))


def test_a_supervisor_that_does_not_answer_the_ping_gets_no_request(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BUSY_TIMEOUT_S", 0.05)
    with supervisor(path, ping=HOLD) as fake, pytest.raises(client.UnreachableError):
        client.request(path, Request("stop"))
    assert fake.asked == []


def test_a_supervisor_that_is_busy_for_a_while_gets_the_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.01)
    late = threading.Event()

    def after_the_bound_of_a_status(_: Request) -> Response:
        late.wait(0.1)
        return Response(message="pong")

    with supervisor(path, ping=after_the_bound_of_a_status, stop=Response(message="stopped")) as fake:
        assert client.request(path, Request("stop")).message == "stopped"
    assert [request.verb for request in fake.requests] == ["ping", "stop"]


def test_a_slow_answer_and_a_death_are_told_apart(path: Path) -> None:
    with supervisor(path, stop=HOLD), pytest.raises(client.NoAnswerError, match=r"within 0\.05 s"):
        client.request(path, Request("stop"), timeout_s=0.05)
    with supervisor(path, stop=None), pytest.raises(SupervisorGoneError, match="went away before"):
        client.request(path, Request("stop"))


def test_rubbish_is_no_response(path: Path) -> None:
    with supervisor(path, stop=b"SSH-2.0\n"), pytest.raises(UsageError):
        client.request(path, Request("stop"))


def test_a_line_without_end_is_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_LINE", 100_000)
    with supervisor(path, stop=b"x" * 1_000_000), pytest.raises(SupervisorGoneError, match="without end"):
        client.request(path, Request("stop"))


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_what_is_not_a_socket_of_ours_is_never_spoken_to(path: Path, tmp_path: Path, kind: str) -> None:
    with supervisor(tmp_path / "real") as fake:
        if kind == "file":
            path.write_text("")
        else:
            path.symlink_to(tmp_path / "real")
        with pytest.raises(RefusedError, match="not a socket of this user"):
            client.request(path, Request("stop"))
    assert fake.requests == []


def test_a_foreign_owner_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with supervisor(path) as fake:
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(RefusedError):
            client.request(path, Request("stop"))
    assert fake.requests == []


def test_a_foreign_peer_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_peer_uid", lambda connected: os.geteuid() + 1)
    with supervisor(path) as fake, pytest.raises(RefusedError, match="belongs to user"):
        client.request(path, Request("stop"))
    assert fake.requests == []


def test_follow_gives_the_status_first_then_every_line(path: Path) -> None:
    status = {"version": 1, "loop": None}
    event = {"v": 1, "seq": 3, "type": "abort", "data": {"text": "a\u2028b"}}
    stream = encode_response(Response(status)) + follow_line("event", event) + follow_line("closed", "closed")
    with supervisor(path, follow=stream) as fake:
        lines = list(client.follow(path, since=2))
    assert lines == [{"status": status}, {"event": event}, {"closed": "closed"}]
    assert fake.asked == [Request("follow", {"since": 2})]


def test_lines_cut_anywhere_are_put_together(path: Path) -> None:
    big = {"text": "ü" * 200_000}
    with supervisor(path, status=Response(big)):
        assert json.dumps(dict(client.request(path, Request("status")).status or {})) == json.dumps(big)
