"""status and wait: the truth, whoever is there to tell it."""

from __future__ import annotations

from typing import Any

import pytest

from loopsup import client
from loopsup.cli import acting
from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import (
    Completed,
    Decision,
    Delivery,
    Failed,
    Fixed,
    Flight,
    Paused,
    PauseReason,
    Phase,
    PromptKind,
    Queued,
    Running,
    Stopped,
    Verb,
    Waiting,
)
from loopsup.errors import WAIT_EXIT
from loopsup.wire.control import Request, Response
from tests.cli.conftest import Run
from tests.cli.support import HOLD, NOW, Result, Sessions, a_loop, status_of

FLIGHT = Flight(4, 1, PromptKind.ITERATION, Delivery.ACCEPTED, Fixed(600_000), 60_000, 86_400_000, NOW.wall)
PHASES: list[Phase] = [
    Waiting(NOW.plus(600_000)),
    Queued(NOW.wall),
    Running(FLIGHT),
    *[Paused(reason) for reason in PauseReason],
    Completed(NOW.wall),
    Failed(NOW.wall),
    Stopped(NOW.wall),
]
ACTIVE = {"waiting", "queued", "running"}
COUNTED = {
    "protocol_retry_count": 2,
    "prompts_sent": 6,
    "llm_calls": 9,
    "last_decision": Decision(Verb.CONTINUE, "two jobs still run", "gh run view 17", None, 3, NOW.wall - 30_000),
}
SHOWN = [
    "iteration 3 of 50 · every 10m",
    "6 prompts sent · 9 LLM calls · 2 of 5 reminders used",
    "\ntime       1h",
    " 24h",
    "continue (iteration 3",
    "two jobs still run",
    "gh run view 17",
]


@pytest.mark.parametrize("phase", PHASES)
def test_status_from_the_files_changes_nothing_and_never_claims_activity(
    run: Run, sessions: Sessions, phase: Phase
) -> None:
    """Case 194 and the truth rule."""
    loop = a_loop(phase, started_at=NOW.wall - HOUR - MINUTE, **COUNTED)
    sessions.make(loop=loop)
    before = sessions.journal()
    told = run("status", "--json")
    people = run("status")
    assert (told.code, told.err, people.code, people.err) == (0, "", 0, "")
    assert sessions.journal() == before
    shown = told.json["loop"]
    if loop.state.value in ACTIVE:
        assert (shown["state"], shown["pauseReason"], shown["nextDueAt"]) == ("paused", "supervisor_lost", None)
    else:
        assert shown["state"] == loop.state.value
        assert shown["pauseReason"] == (phase.reason.value if isinstance(phase, Paused) else None)
    for words in SHOWN:
        assert words in people.out
    assert told.json["session"]["supervisor"] == {"alive": False, "responding": False, "pid": None}


def test_status_without_a_loop_is_no_error(run: Run, sessions: Sessions) -> None:
    sessions.make()
    assert run("status").code == 0
    assert run("status", "--json").json["loop"] is None


def test_a_live_supervisor_has_the_word(run: Run, sessions: Sessions) -> None:
    said = status_of(a_loop(iteration_count=17))
    with sessions.live(loop=a_loop(), status=Response(said)) as fake:
        assert run("status", "--json").json == said
        assert "17 of 50" in run("status").out
    assert [request.verb for request in fake.requests] == ["status", "status"]


def test_an_owner_that_does_not_answer_gives_the_last_journal_state_and_exit_5(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.05)
    with sessions.live(loop=a_loop(), status=HOLD):
        told = run("status", "--json")
    assert told.code == 5
    assert told.json["loop"]["state"] == "waiting"
    supervisor = told.json["session"]["supervisor"]
    assert (supervisor["alive"], supervisor["responding"]) == (True, False)
    assert isinstance(supervisor["pid"], int)
    assert told.json["session"]["problem"] == (
        "the supervisor does not answer; this is the last state in its journal"
    )
    assert "answer" in told.err


def test_of_an_owner_that_does_not_answer_no_wake_is_promised(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.05)
    with sessions.live(loop=a_loop(), status=HOLD):
        told = run("status")
    assert told.code == 5
    assert told.out.startswith("was waiting when it was last heard; nobody answers\n")
    assert "wake" not in told.out


OUTCOMES = [(phase, WAIT_EXIT[phase.reason.value]) for phase in PHASES if isinstance(phase, Paused)] + [
    (Completed(NOW.wall), 0),
    (Failed(NOW.wall), 10),
    (Stopped(NOW.wall), 15),
]


@pytest.mark.parametrize(("phase", "code"), OUTCOMES)
def test_wait_exits_with_the_outcome_live_or_not(run: Run, sessions: Sessions, phase: Phase, code: int) -> None:
    loop = a_loop(phase)
    with sessions.live("live", loop, wait=Response(status_of(loop, "live"))) as fake:
        assert run("wait", "--session", "live").code == code
        told = run("wait", "--session", "live", "--json")
        assert (told.code, told.json) == (code, status_of(loop, "live"))
    assert fake.asked == [Request("wait"), Request("wait")]
    sessions.make("dead", loop)
    assert run("wait", "--session", "dead").code == code


def test_wait_after_a_loss_is_17(run: Run, sessions: Sessions) -> None:
    sessions.make(loop=a_loop())
    assert run("wait").code == 17


@pytest.mark.parametrize("phase", [Waiting(NOW.plus(600_000)), Paused(PauseReason.USER), Paused(PauseReason.BLOCKED)])
def test_a_deadline_that_passed_while_nobody_was_there(run: Run, sessions: Sessions, phase: Phase) -> None:
    """What only looks says what the next command will record, and records nothing."""
    sessions.make(loop=a_loop(phase, started_at=NOW.wall - DAY - HOUR))
    before = sessions.journal()
    told = [run("status", "--json").json, run("wait", "--json").json, *run("ls", "--json").json["sessions"]]
    assert [(status["loop"]["state"], status["loop"]["pauseReason"]) for status in told] == [
        ("paused", "duration_limit")
    ] * 3
    assert run("wait").code == 12
    assert "its time is used up" in run("status").out
    assert "paused: time used up" in run("ls").out
    assert sessions.journal() == before
    assert not (sessions.home.sessions / "work" / "events.jsonl").exists()


def test_ctrl_c_of_a_wait_says_that_the_loop_goes_on(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with sessions.live("a", a_loop()):
        monkeypatch.setattr(acting, "ask", interrupted)
        assert run("wait") == Result(130, "", "loopsup: left; the loop goes on, `loopsup stop --session a` ends it\n")


def test_wait_without_a_loop_is_not_found(run: Run, sessions: Sessions) -> None:
    sessions.make()
    result = run("wait")
    assert (result.code, result.out) == (3, "")


def test_wait_timeout_is_124_and_the_loop_goes_on(run: Run, sessions: Sessions) -> None:
    with sessions.live(loop=a_loop(), wait=HOLD):
        result = run("wait", "--timeout", "1s", "--json")
    assert result.code == 124
    assert result.json["error"]["kind"] == "timeout"


def test_a_supervisor_that_dies_while_we_wait_leaves_the_files(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopsup.cli.selection import Session

    lives: list[Any] = [True, False]

    def alive(session: Session) -> bool:
        return bool(lives.pop(0)) if lives else False

    monkeypatch.setattr(Session, "alive", alive)
    with sessions.live(loop=a_loop(), wait=None):
        result = run("wait", "--json")
    assert (result.code, result.json["loop"]["pauseReason"]) == (17, "supervisor_lost")


def dies_after(looks: int, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every session is alive for so many looks at its lock; those that are left."""
    from loopsup.cli.selection import Session

    left = [True] * looks
    monkeypatch.setattr(Session, "alive", lambda session: bool(left and left.pop()))
    return left


def test_a_supervisor_that_closes_when_we_begin_to_wait_is_seen_to_its_end(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server is gone already and its lock is held for some milliseconds more: that is no error."""
    lives = dies_after(3, monkeypatch)
    with sessions.live(loop=a_loop(Completed(NOW.wall)), wait=None, status=None):
        result = run("wait", "--json")
    assert (result.code, result.json["loop"]["state"]) == (0, "completed")
    assert lives == []


def test_the_status_of_a_session_that_closes_just_now_comes_from_the_files(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = dies_after(2, monkeypatch)
    with sessions.live(loop=a_loop(Completed(NOW.wall)), status=None):
        result = run("status", "--json")
    session = result.json["session"]
    assert (result.code, session["problem"], session["supervisor"]["alive"]) == (0, None, False)
    assert lives == []


def test_agent_text_is_shown_harmless(run: Run, sessions: Sessions) -> None:
    sessions.make(loop=a_loop(Paused(PauseReason.USER), objective="x\x1b]0;pwned\x07y"))
    shown = run("status")
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out
    assert shown == Result(0, shown.out, "")
