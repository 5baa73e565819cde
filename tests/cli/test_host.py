"""`loopsup host`: what an extension inside an agent asks where no supervisor serves it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup import client
from loopsup.cli import acting, launch
from loopsup.cli.selection import named
from loopsup.core.events import Ticked
from loopsup.core.model import Paused, PauseReason
from loopsup.errors import RefusedError
from loopsup.store.identity import load_identity
from loopsup.store.journal import JournalAppender
from loopsup.store.lock import SessionLock
from loopsup.wire.control import CLOSING, Launch, Request, Response
from tests.cli import plugin
from tests.cli.conftest import Run
from tests.cli.support import NOW, a_loop, status_of, supervisor

POLICY = {
    "minDelayMs": 60_000,
    "maxDelayMs": 86_400_000,
    "forMs": 86_400_000,
    "maxIterations": 50,
    "misfire": "once",
    "rhythm": 600_000,
}
START = Request("start", {"objective": "watch  it", "policy": POLICY})
STARTED = Response(status_of(a_loop()), "the loop is started", ("most of the time is spent waiting",))
PAUSED = Paused(PauseReason.SESSION_CLOSED, NOW.wall)
Ask = Callable[..., list[dict[str, Any]]]


class Begun:
    """Stands for the supervisor process: sends its invitation, then `answered`."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.answered: Response | RefusedError = STARTED

    def begin(self, launched: Launch, folder: Path) -> Begun:
        self.launches.append(launched)
        return self

    def answer(self, invited: Callable[[str], None]) -> Response:
        invited("the way in")
        if isinstance(self.answered, Response):
            return self.answered
        raise self.answered


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    monkeypatch.syspath_prepend(str(plugin.install(tmp_path)))
    monkeypatch.setenv("LOOPSUP_ADAPTERS", ",".join(plugin.NAMES))
    fake = Begun()
    monkeypatch.setattr(launch, "begin", fake.begin)
    return fake


@pytest.fixture
def ask(run: Run, begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """`ask("pause")` -> the JSON lines of the answer."""
    (tmp_path / "pi").mkdir()

    def ask_line(line: str, file: Any = str(tmp_path / "pi" / "s.jsonl"), code: int = 0) -> list[dict[str, Any]]:
        conversation = {"id": "c1", "file": file, "cwd": str(tmp_path / "work")}
        asked = json.dumps({"agent": "one", "line": line, "conversation": conversation}).encode() + b"\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(asked)))
        result = run("host")
        assert (result.code, result.err) == (code, "")
        return [json.loads(each) for each in result.out.splitlines()]

    return ask_line


def pause_it(name: str) -> None:
    """The session has a paused loop in its journal."""
    with JournalAppender.open(named(name).folder) as journal:
        journal.append(NOW, Ticked(idle=False), a_loop(PAUSED))


def test_a_start_makes_a_session_of_the_conversation_and_invites(ask: Ask, begun: Begun, tmp_path: Path) -> None:
    assert ask("start --every 10m watch  it") == [
        {"invite": "the way in"},
        {
            "done": True,
            "message": "the loop is started\nwarning: most of the time is spent waiting",
            "status": STARTED.status,
        },
    ]
    assert begun.launches == [Launch("work", "new", START, hosted=True)]
    session = named("work")
    assert session.folder == tmp_path / "pi" / "s.loopsup"
    assert (session.identity.agent, session.identity.agent_session_id) == ("one", "c1")


def test_a_start_that_is_refused_leaves_nothing(ask: Ask, begun: Begun, tmp_path: Path) -> None:
    begun.answered = RefusedError("no")
    assert ask("start --every 10m x", code=4)[-1] == {"done": False, "message": "no"}
    assert not (tmp_path / "pi" / "s.loopsup").exists()
    begun.launches.clear()
    assert "--every" in ask("start --every 1s x", code=2)[-1]["message"]  # below the shortest wait
    assert begun.launches == []


def test_nothing_is_there_yet(ask: Ask) -> None:
    assert ask("") == [{"done": True, "session": None, "owner": None, "state": ""}]
    for line in ("status", "pause", "resume", "stop", "update --every 5m"):
        assert "there is no loop in this conversation" in ask(line, code=3)[-1]["message"]


def test_a_loop_that_is_paused_here(ask: Ask, begun: Begun) -> None:
    ask("start --every 10m watch  it")
    pause_it("work")
    (who,) = ask("")
    assert (who["session"], who["owner"], who["state"][:6]) == ("work", None, "paused")
    (status,) = ask("status")
    assert "paused" in status["text"]
    assert status["status"]["loop"]["pauseReason"] == "session_closed"
    assert ask("update --max-iterations 7")[0]["status"]["loop"]["maxIterations"] == 7
    refused = ask("start --every 10m y", code=4)[-1]["message"]
    assert "there is a loop here already" in refused
    begun.launches.clear()
    assert ask("resume")[0] == {"invite": "the way in"}
    assert begun.launches == [Launch("work", "reopen", Request("resume"), hosted=True)]
    assert ask("stop")[0]["status"]["loop"]["state"] == "stopped"
    begun.launches.clear()
    ask("start --every 10m watch  it")  # the next one, in the same session
    assert begun.launches == [Launch("work", "reopen", START, hosted=True)]


def test_the_status_of_a_busy_supervisor_is_waited_for(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("start --every 10m watch  it")
    folder = named("work").folder
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.01)

    def late(request: Request) -> Response:
        time.sleep(0.1)
        return STARTED

    with SessionLock.acquire(folder), supervisor(Path(load_identity(folder).socket), status=late):
        assert ask("status")[0]["status"] == STARTED.status


def test_a_conversation_that_is_driven_already_is_refused(ask: Ask) -> None:
    ask("start --every 10m watch  it")
    folder = named("work").folder
    with SessionLock.acquire(folder), supervisor(Path(load_identity(folder).socket)):
        assert ask("")[0]["owner"] is not None
        for line in ("start --every 10m x", "resume", "pause"):
            assert "drives this conversation" in ask(line, code=4)[-1]["message"]


def test_who_keeps_a_conversation_without_a_word_is_not_waited_for_for_ever(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("start --every 10m watch  it")
    monkeypatch.setattr("loopsup.cli.host.LEAVING_MS", 0)
    with SessionLock.acquire(named("work").folder):
        assert ask("")[0]["owner"] is not None


@pytest.mark.parametrize("line", ["", "resume", "update --max-iterations 7"])
@pytest.mark.parametrize("listens", [True, False])
def test_a_supervisor_that_is_about_to_go_is_waited_for(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, line: str, listens: bool
) -> None:
    """Pi is quit, and opened again at once."""
    ask("start --every 10m watch  it")
    pause_it("work")
    folder = named("work").folder
    with contextlib.ExitStack() as held:
        held.enter_context(SessionLock.acquire(folder))
        if listens:
            held.enter_context(supervisor(Path(load_identity(folder).socket), ping=Response(message=CLOSING)))
        monkeypatch.setattr(acting, "pause", lambda seconds: held.close())
        answer = ask(line)[-1]
    assert (answer["done"], answer.get("owner")) == (True, None)


def test_the_agents_own_processes_get_nothing(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_AGENT", "1")
    for line in ("start --every 10m x", "stop"):
        assert "only a person may do that" in ask(line, code=4)[-1]["message"]


def test_a_conversation_without_a_file_is_refused(ask: Ask) -> None:
    assert "not kept in a file" in ask("start --every 10m x", file=None, code=2)[-1]["message"]


WELL = {"agent": "one", "line": "", "conversation": {"id": "c1", "file": "/s.jsonl", "cwd": "/work"}}


@pytest.mark.parametrize(
    "typed",
    [
        b"",
        b"{}",
        b"start",
        b"[" * 100_000,
        json.dumps(WELL | {"agent": 1}).encode(),
        json.dumps(WELL | {"line": ["start"]}).encode(),
        *(
            json.dumps(WELL | {"conversation": conversation}).encode()
            for conversation in (None, "c1", ["c1"], {}, {"id": "c1", "file": "/s.jsonl"}, {"id": [], "cwd": "/work"})
        ),
        json.dumps(WELL | {"conversation": WELL["conversation"] | {"cwd": "/a\0b"}}).encode(),  # type: ignore[operator]
    ],
)
def test_what_no_extension_would_ask_is_refused_in_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: bytes
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed + b"\n")))
    result = run("host")
    message = "this is asked by loopsup's extensions, not by hand"
    assert (result.code, result.err, json.loads(result.out)) == (2, "", {"done": False, "message": message})
