"""`loopsup top`: who comes first, and that it is for terminals only."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from loopsup.cli import top
from loopsup.core.model import Completed, Paused, PauseReason, Queued, State, Waiting
from loopsup.errors import UsageError
from tests.cli.conftest import Run
from tests.cli.support import NOW, a_loop, status_of


def of(name: str, loop: Any, **session: Any) -> dict[str, Any]:
    status = status_of(loop, name)
    status["session"].update(session)
    return status


def paused(reason: PauseReason) -> Any:
    return a_loop(Paused(reason, None))


FOUND = [
    of("ended", a_loop(Completed(NOW.wall))),
    of("nothing", None),
    of("mine", paused(PauseReason.USER)),
    of("later", a_loop(Waiting(NOW.plus(600_000)))),
    of("sooner", a_loop(Waiting(NOW.plus(60_000)))),
    of("queued", a_loop(Queued(NOW.wall))),
    of("blocked", paused(PauseReason.BLOCKED)),
    of("lost", paused(PauseReason.SUPERVISOR_LOST)),
    of("silent", a_loop(), supervisor={"alive": True, "responding": False, "pid": 1}),
    of("broken", None, problem="it cannot be read", id=""),
]


def test_whoever_needs_a_person_comes_first() -> None:
    names = [status["session"]["name"] for status in top.ordered(FOUND)]
    assert sorted(names[:4]) == ["blocked", "broken", "lost", "silent"]
    assert names[4:] == ["queued", "sooner", "later", "mine", "ended", "nothing"]
    words = "10 sessions: 4 needs you, 1 queued, 2 waiting, 1 paused, 1 ended, 1 no loop"
    assert top.heading(FOUND) == words
    assert (top.heading(FOUND[:1]), top.heading([])) == ("1 session: 1 ended", "no session")


@pytest.mark.parametrize("late", [True, False])
def test_a_late_wake_and_a_question_need_one(late: bool) -> None:
    status = of("work", a_loop())
    assert top.rank(status) == "waiting"
    status["loop"].update({"late": late, "question": None if late else {"id": "q"}})
    assert top.rank(status) == "needs you"


def test_every_reason_and_every_state_has_a_place() -> None:
    for reason in PauseReason:
        assert top.rank(of("work", paused(reason))) in ("needs you", "paused")
    assert set(top.RANKS) >= {state.value for state in State} - top.ENDED
    assert {reason.value for reason in PauseReason} >= top.WAITS_FOR_A_PERSON


def test_without_a_terminal_it_says_what_to_use(run: Run) -> None:
    result = run("top")
    assert (result.code, "loopsup ls --json" in result.err) == (2, True)


def test_without_any_standard_input_or_with_a_dumb_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    for stdin, said in ((None, "loopsup ls --json"), (Terminal(), "than TERM says")):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", Terminal())
        with pytest.raises(UsageError, match=said):
            top.top()
