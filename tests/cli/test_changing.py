"""pause, resume, stop, update, abort, answer, close: over the socket while a supervisor lives, else their way."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from loopsup import client
from loopsup.cli import acting, launch, selection
from loopsup.core.model import Completed, Paused, PauseReason, State, Stopped
from loopsup.core.overrides import Overrides
from loopsup.errors import AgentUnableError, RefusedError
from loopsup.store.identity import load_identity
from loopsup.store.lock import SessionLock
from loopsup.wire.control import Launch, Request, Response
from tests.cli.conftest import Run
from tests.cli.support import HOLD, NOW, Result, Sessions, a_loop, status_of, supervisor

PAUSED = status_of(a_loop(Paused(PauseReason.USER)))
POLICY = {"rhythm": "auto", "minDelayMs": 60_000, "forMs": 172_800_000}

LIVE: list[tuple[list[str], Request]] = [
    (["pause"], Request("pause")),
    (["resume"], Request("resume")),
    (["stop"], Request("stop")),
    (["abort"], Request("abort")),
    (["close"], Request("close")),
    (["update", "--continuity", "off"], Request("update", {"continuity": {"enabled": False}})),
    (["update", "--every", "auto", "--min-delay", "1m", "--for", "48h"], Request("update", {"policy": POLICY})),
    (["answer", "allow"], Request("answer", {"allow": True})),
    (["answer", "deny", "q7"], Request("answer", {"allow": False, "id": "q7"})),
    (["say", "hello  "], Request("say", {"text": "hello  ", "wait": False})),
    (["say", "--wait", "hello"], Request("say", {"text": "hello", "wait": True})),
    (["say", "--", "-x"], Request("say", {"text": "-x", "wait": False})),
]


@pytest.mark.parametrize(("argv", "request_"), LIVE)
def test_a_live_supervisor_is_asked(run: Run, sessions: Sessions, argv: list[str], request_: Request) -> None:
    answer = Response(PAUSED, "done so", ("mind this",))
    with sessions.live(loop=a_loop(), **{request_.verb: answer}) as fake:
        assert run(*argv) == Result(0, "done so\n", "loopsup: warning: mind this\n")
        as_json = run(argv[0], "--json", *argv[1:])
        assert (as_json.code, as_json.json) == (0, PAUSED)
    assert fake.asked == [request_, request_]


@pytest.mark.parametrize(("argv", "request_"), LIVE)
def test_a_refusal_is_passed_on(run: Run, sessions: Sessions, argv: list[str], request_: Request) -> None:
    refusal = Response(error=RefusedError("the loop has ended\x1b"))
    with sessions.live(loop=a_loop(), **{request_.verb: refusal}):
        assert run(*argv) == Result(4, "", "loopsup: the loop has ended\\x1b\n")


@pytest.mark.parametrize(("argv", "request_"), LIVE)
def test_an_owner_that_answers_nobody_is_exit_5_and_nothing_changes(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, argv: list[str], request_: Request
) -> None:
    monkeypatch.setattr(client, "BUSY_TIMEOUT_S", 0.02)
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.02)
    with sessions.live(loop=a_loop(), ping=HOLD) as fake:
        before = sessions.journal()
        result = run(*argv)
        assert (result.code, result.out, sessions.journal()) == (5, "", before)
    assert "does not answer; nothing was changed" in result.err
    assert fake.asked == []


def test_an_owner_without_a_socket_is_waited_for_a_moment(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "STARTING_MS", 100)
    with SessionLock.acquire(sessions.make(loop=a_loop())):
        assert run("pause").code == 5


def test_one_that_is_on_its_way_up_has_more_time_than_one_that_is_silent(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock, and ends what a killed one left behind before it listens."""
    sessions.make(loop=a_loop())
    session = selection.named("work")
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.0)
    looks = []
    with ExitStack() as up:

        def look(_: float) -> None:
            looks.append(1)
            if len(looks) == 3:
                up.enter_context(supervisor(session.socket, pause=Response(PAUSED, "paused"), tick=Response(PAUSED)))

        monkeypatch.setattr(acting, "pause", look)
        up.enter_context(SessionLock.acquire(session.folder))
        assert run("pause") == Result(0, "paused\n", "")
        assert acting.ask(session, Request("tick"), 30.0) == Response(PAUSED)
    assert len(looks) == 3


def test_a_status_waits_for_nobody_on_the_way_up(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.05)
    with SessionLock.acquire(sessions.make(loop=a_loop())):
        assert run("status").code == 5


def test_a_supervisor_that_comes_up_in_between_is_asked(sessions: Sessions) -> None:
    sessions.make(loop=a_loop())
    session = selection.named("work")
    with ExitStack() as up:

        def too_late(_: selection.Session) -> Response:
            up.enter_context(SessionLock.acquire(session.folder))
            up.enter_context(supervisor(session.socket, pause=Response(PAUSED, "paused")))
            SessionLock.acquire(session.folder)
            raise AssertionError("the lock was free")

        assert acting.perform(session, Request("pause"), too_late) == Response(PAUSED, "paused")


def test_who_was_too_late_to_open_a_session_asks_whoever_did(sessions: Sessions) -> None:
    """The process that was started in vain says so over its pipe; nothing but its words comes through."""
    sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    session = selection.named("work")
    with ExitStack() as up:

        def too_late(_: selection.Session) -> Response:
            up.enter_context(SessionLock.acquire(session.folder))
            up.enter_context(supervisor(session.socket, resume=Response(PAUSED, "it goes on")))
            raise RefusedError("the session is owned by process 1")

        assert acting.perform(session, Request("resume"), too_late) == Response(PAUSED, "it goes on")


def test_a_refusal_without_a_supervisor_stands(sessions: Sessions) -> None:
    sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    session = selection.named("work")

    def refused(_: selection.Session) -> Response:
        raise RefusedError("not now")

    with pytest.raises(RefusedError, match="not now"):
        acting.perform(session, Request("resume"), refused)


@pytest.mark.parametrize("argv", [["abort"], ["answer", "allow"], ["attach"]])
def test_what_only_a_supervisor_can_do_is_exit_5(run: Run, sessions: Sessions, argv: list[str]) -> None:
    sessions.make(loop=a_loop())
    before = sessions.journal()
    result = run(*argv)
    assert (result.code, result.out, sessions.journal()) == (5, "", before)
    assert "has no supervisor" in result.err


def test_pause_without_a_supervisor(run: Run, sessions: Sessions) -> None:
    """The dead supervisor's loss is recorded first (D-44), so the reason stays."""
    sessions.make(loop=a_loop())
    result = run("pause", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["loop"]["pauseReason"] == "supervisor_lost"
    assert result.json["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}


def test_stop_without_a_supervisor(run: Run, sessions: Sessions) -> None:
    sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    assert run("stop") == Result(0, "the loop is stopped\n", "")
    loop = sessions.loop()
    assert loop is not None
    assert isinstance(loop.phase, Stopped)
    assert run("stop").code == 4


def test_update_without_a_supervisor(run: Run, sessions: Sessions) -> None:
    sessions.make(loop=a_loop(Paused(PauseReason.ITERATION_LIMIT), iteration_count=50))
    assert run("update", "--max-iterations", "100", "--every", "auto").code == 0
    loop = sessions.loop()
    assert loop is not None
    assert (loop.state, loop.policy.max_iterations, loop.iteration_count) == (State.PAUSED, 100, 50)


@pytest.mark.parametrize("more", [[], ["--max-iterations", "100"]])
def test_recovery_is_switched_without_a_supervisor(run: Run, sessions: Sessions, more: list[str]) -> None:
    """Kept for the next one."""
    folder = sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    for word in ("off", "on"):
        assert run("update", "--continuity", word, *more).code == 0
        assert load_identity(folder).continuity == Overrides(enabled=word == "on")
    loop = sessions.loop()
    assert loop is not None
    assert loop.policy.max_iterations == (100 if more else 50)


def test_there_must_be_a_loop_to_recover(run: Run, sessions: Sessions) -> None:
    folder = sessions.make()
    assert run("update", "--continuity", "off").code == 3
    assert load_identity(folder).continuity == Overrides()


def test_a_bad_combination_without_a_supervisor_is_exit_2(run: Run, sessions: Sessions) -> None:
    """Case 71."""
    sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    before = sessions.journal()
    result = run("update", "--min-delay", "20m", "--max-iterations", "1000001")
    assert (result.code, sessions.journal()) == (2, before)
    assert "--min-delay" in result.err
    assert "--max-iterations" in result.err


@pytest.mark.parametrize("argv", [["pause"], ["stop"], ["update", "--for", "48h"]])
def test_no_loop_is_not_found_and_an_ended_one_refuses(run: Run, sessions: Sessions, argv: list[str]) -> None:
    sessions.make("empty")
    assert run(*argv, "--session", "empty").code == 3
    sessions.make("ended", a_loop(Completed(NOW.wall)))
    before = sessions.journal("ended")
    assert (run(*argv, "--session", "ended").code, sessions.journal("ended")) == (4, before)


def test_close_without_a_supervisor_puts_in_order_what_a_dead_one_left(run: Run, sessions: Sessions) -> None:
    sessions.make(loop=a_loop())
    assert run("close") == Result(0, "session 'work' is closed already\n", "")
    loop = sessions.loop()
    assert loop is not None
    assert isinstance(loop.phase, Paused)
    assert loop.phase.reason is PauseReason.SUPERVISOR_LOST


class Launched:
    """Stands for the start of a supervisor."""

    def __init__(self, response: Response) -> None:
        self.launches: list[Launch] = []
        self._response = response

    def begin(self, launched: Launch, folder: object) -> Launched:
        self.launches.append(launched)
        return self

    def answer(self) -> Response:
        if self._response.error is not None:
            raise self._response.error
        return self._response


@pytest.mark.parametrize(
    ("argv", "first"),
    [
        (["resume"], Request("resume")),
        (["say", "hello"], Request("say", {"text": "hello", "wait": False})),
    ],
)
def test_a_dead_session_is_reopened(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, argv: list[str], first: Request
) -> None:
    launched = Launched(Response(PAUSED, "goes on"))
    monkeypatch.setattr(launch, "begin", launched.begin)
    sessions.make(loop=a_loop())
    assert run(*argv) == Result(0, "goes on\n", "")
    assert launched.launches == [Launch("work", "reopen", first)]
    launched = Launched(Response(error=RefusedError("not paused")))
    monkeypatch.setattr(launch, "begin", launched.begin)
    assert run(*argv) == Result(4, "", "loopsup: not paused\n")


def test_say_wait_reopens_without_a_first_request_and_then_waits_on_the_socket(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a supervisor is bounded, an answer of the agent is not."""
    folder = sessions.make(loop=a_loop())
    request = Request("say", {"text": "hello", "wait": True})
    launched = Launched(Response(PAUSED))
    asked: list[Any] = []
    monkeypatch.setattr(launch, "begin", launched.begin)
    monkeypatch.setattr(acting, "need", lambda session, what, timeout_s: asked.append(what) or Response(PAUSED, "ok"))
    assert run("say", "--wait", "hello") == Result(0, "ok\n", "")
    assert (launched.launches, asked) == ([Launch("work", "reopen", None)], [request])
    assert folder.exists()


def test_say_wait_timeout_is_124(run: Run, sessions: Sessions) -> None:
    with sessions.live(loop=a_loop(), say=HOLD):
        result = run("say", "--wait", "--timeout", "1s", "x")
    assert result.code == 124
    assert "the message stays said" in result.err


def test_autopilot_needs_an_agent_that_can(run: Run, sessions: Sessions) -> None:
    unable = Response(error=AgentUnableError("--autopilot needs an agent with a task_complete tool"))
    with sessions.live(loop=a_loop(), say=unable) as fake:
        result = run("say", "--autopilot", "--max-reminders", "0", "x")
    assert (result.code, result.out) == (6, "")
    assert "task_complete" in result.err
    assert [request.args for request in fake.asked if request.verb == "say"] == [
        {"text": "x", "wait": False, "autopilot": True, "maxReminders": 0}
    ]
