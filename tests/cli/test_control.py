"""`loopsup control`: the verdict of the supervisor reaches the shell of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.errors import RefusedError
from loopsup.store.identity import load_identity
from loopsup.wire.control import Request, Response
from tests.cli.conftest import Run
from tests.cli.support import Result, Sessions, a_loop, status_of

STATUS = status_of(a_loop())
SAID = ("--summary", "still red", "--evidence", "gh run view 5: failure")


@pytest.fixture
def carried(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    monkeypatch.setenv("LOOPSUP_TOKEN", "t0ken")
    return sessions


def point_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_SOCKET", str(path))


def test_the_arguments_go_to_the_supervisor_as_they_are(
    run: Run, carried: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with carried.live(loop=a_loop(), decide=Response(STATUS, "accepted")) as fake:
        point_to(fake.path, monkeypatch)
        assert run("control", "continue", *SAID, "--next-delay", "10m") == Result(0, "accepted\n", "")
        as_json = run("control", "wat", *SAID, "--json")
        assert (as_json.code, as_json.json) == (0, STATUS)
    said = {"summary": "still red", "evidence": "gh run view 5: failure"}
    assert fake.asked == [
        Request("decide", {"token": "t0ken", "arguments": {"decision": "continue", **said, "nextDelay": "10m"}}),
        Request("decide", {"token": "t0ken", "arguments": {"decision": "wat", **said}}),
    ]


def test_a_refusal_is_exit_4_with_its_words(run: Run, carried: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    with carried.live(loop=a_loop(), decide=Response(error=RefusedError("nextDelay is missing"))) as fake:
        point_to(fake.path, monkeypatch)
        assert run("control", "continue", *SAID) == Result(4, "", "loopsup: nextDelay is missing\n")


def test_a_person_has_no_token(run: Run, sessions: Sessions) -> None:
    with sessions.live(loop=a_loop()) as fake:
        done = run("control", "complete", *SAID)
    assert (done.code, done.out) == (4, "")
    assert "only the agent of a loop can decide" in done.err
    assert fake.asked == []


def test_a_supervisor_that_is_gone_is_exit_5(run: Run, carried: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = carried.make("work", a_loop())
    point_to(Path(load_identity(folder).socket), monkeypatch)
    assert run("control", "complete", *SAID).code == 5


@pytest.mark.parametrize("argv", [["complete"], ["complete", "--summary", "x"], [*SAID], ["complete", *SAID, *SAID]])
def test_what_is_missing_or_given_twice_is_exit_2(run: Run, argv: list[str]) -> None:
    assert run("control", *argv).code == 2
