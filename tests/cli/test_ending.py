"""A supervisor that ends in the very moment it is asked: what it certainly did not do is done without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loopsup.cli import acting, selection
from loopsup.core.events import Close, Event, Pause, Stop, Update
from loopsup.core.step import advance
from loopsup.store.journal import JournalAppender
from loopsup.wire.control import Request
from tests.cli.conftest import Run
from tests.cli.support import NOW, Sessions, a_loop, supervisor

# What is asked, what a supervisor would have recorded of it, and how the loop of one that closed instead stands then.
ENDING: list[tuple[list[str], Event, tuple[str, str | None, int]]] = [
    (["pause"], Pause(), ("paused", "session_closed", 50)),
    (["stop"], Stop(), ("stopped", None, 50)),
    (["update", "--max-iterations", "9"], Update(max_iterations=9), ("paused", "session_closed", 9)),
    (["close"], Close(), ("paused", "session_closed", 50)),
]


class Ending:
    """A supervisor that closes while it is asked: it hangs up, and lets go of its lock after our second look.

    What it records before it ends is `events`; `again`: it came back, as after a reload, and holds the lock.
    """

    def __init__(
        self, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, *events: Event, again: bool = False
    ) -> None:
        self._sessions, self._events, self._again = sessions, events, again
        self.looks = 0
        monkeypatch.setattr(selection.Session, "alive", lambda session: self.alive())

    def alive(self) -> bool:
        self.looks += 1
        return self.looks <= 2 or self._again

    def hangs_up(self, _: Request) -> None:
        folder = self._sessions.home.sessions / "work"
        with JournalAppender.open(folder) as journal:
            loop = journal.tail.loop
            for event in self._events:
                for step in advance(loop, event, NOW):
                    if step.loop != loop:
                        journal.append(NOW, event, step.loop)
                        loop = step.loop


@contextmanager
def ending(sessions: Sessions, verb: str, end: Ending) -> Iterator[None]:
    sessions.make(loop=a_loop())
    with supervisor(selection.named("work").socket, **{verb: end.hangs_up}):
        yield


@pytest.mark.parametrize(("argv", "event", "after"), ENDING)
def test_one_that_ends_without_having_done_it_leaves_it_to_us(
    run: Run,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    event: Event,
    after: tuple[str, str | None, int],
) -> None:
    """Its journal has how it closed, and nothing of the command; this is as if nobody had been there."""
    with ending(sessions, argv[0], Ending(sessions, monkeypatch, Close())):
        told = run(*argv, "--json")
    loop = told.json["loop"]
    assert (told.code, told.err) == (0, "")
    assert (loop["state"], loop["pauseReason"], loop["maxIterations"]) == after


@pytest.mark.parametrize(("argv", "event", "after"), ENDING[:3])
def test_one_that_did_it_and_then_went_is_exit_5(
    run: Run,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    event: Event,
    after: tuple[str, str | None, int],
) -> None:
    with ending(sessions, argv[0], Ending(sessions, monkeypatch, event, Close())):
        told = run(*argv)
    assert (told.code, "went away before it answered" in told.err) == (5, True)


@pytest.mark.parametrize("line", ["pause", "close", "resume", "abort"])
def test_of_one_that_may_still_do_it_nothing_is_certain(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It lives on, as after a reload; or the journal would not show it."""
    monkeypatch.setattr(acting, "ANSWER_TIMEOUT_S", 0.02)
    end = Ending(sessions, monkeypatch, again=line in ("pause", "close"))
    with ending(sessions, line, end):
        before = sessions.journal()
        told = run(line)
        assert (told.code, sessions.journal()) == (5, before)


def test_of_a_damaged_journal_nothing_is_certain(
    run: Run, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Ending(sessions, monkeypatch, Close())
    with ending(sessions, "pause", end):
        with (sessions.home.sessions / "work" / "journal.jsonl").open("a") as journal:
            journal.write("no record\n")
        assert run("pause").code == 5
