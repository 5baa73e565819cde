"""pause, resume and stop in every state, and their races (cases 47-59)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopsup.core.limits import HOUR, MINUTE
from loopsup.core.model import Paused, PauseReason, State
from loopsup.core.step import next_deadline
from tests.support.scenario import Scenario
from tests.support.script import Turn, View, policy_of, says


def running(*turns: Turn, lasts: str = "5m") -> Scenario:
    """A loop in its first iteration, at +1m of five."""
    s = Scenario.scripted(*turns, default=says("continue", lasts=lasts))
    s.start()
    return s.run_until("+1m")


def waiting() -> Scenario:
    s = Scenario.scripted()
    s.start()
    return s.run_until("+5m")


def queued() -> Scenario:
    s = waiting()
    s.user_turn("10m", at="+9m")
    return s.run_until("+12m")


# ---- 5. pause, resume, stop -----------------------------------------------------------------------


def test_case_47_pause_in_waiting() -> None:
    s = waiting()
    assert s.pause().ok
    due = next_deadline(s.live)
    assert (due.wall, due.mono) == (s.live.deadline_at, None), "only the deadline stays armed (case 198)"
    s.run_until("+23h")
    assert s.view() == View("paused", "user", 1)
    assert s.sent == 1


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("continue", View("paused", "user", 1)),
        ("complete", View("completed", n=1, events=("completed",))),
        ("fail", View("failed", n=1, events=("failed",))),
        ("block", View("paused", "blocked", 1, events=("blocked",))),
    ],
)
def test_case_49_pause_during_an_iteration(verb: str, view: View) -> None:
    s = running(says(verb, lasts="5m"))
    assert s.pause().ok
    assert s.view() == View("running", n=1), "nothing in flight is aborted (L-89)"
    s.run_until("+5m")
    assert s.view() == view


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("continue", View("paused", "iteration_limit", 1, 1, events=("iteration_limit",))),
        ("block", View("paused", "blocked", 1, 1, events=("blocked",))),
        ("complete", View("completed", None, 1, 1, events=("completed",))),
    ],
)
@pytest.mark.parametrize("pausing", [False, True])
def test_the_last_iteration_with_and_without_a_pause_intent(verb: str, view: View, pausing: bool) -> None:
    s = Scenario.scripted(says(verb, lasts="5m"))
    s.start(policy=policy_of(max_iterations=1))
    s.run_until("+1m")
    if pausing:
        s.pause()
    s.run_until("+1h")
    assert s.view() == view


@pytest.mark.parametrize("verb", ["continue", "complete", "fail", "block"])
def test_case_50_stop_during_an_iteration(verb: str) -> None:
    s = running(says(verb, lasts="5m"))
    assert s.stop().ok
    assert s.view() == View("running", n=1)
    s.run_until("+5m")
    assert s.view() == View("stopped", n=1)
    assert s.live.last_decision is not None
    assert s.live.last_decision.verb == verb
    s.run_until("+48h")
    assert s.view() == View("stopped", n=1)


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_stop_after_the_decision_was_accepted_still_stops(verb: str) -> None:
    s = running(says(verb, lasts="5m", decides_after="30s"))
    s.stop()
    s.run_until("+5m")
    assert s.view() == View("stopped", n=1)


def test_case_51_stop_withdraws_the_queued_wake() -> None:
    s = queued()
    assert s.view() == View("queued", n=1, queued=1)
    assert s.stop().ok
    assert s.view() == View("stopped", n=1)
    s.run_until("+1h")
    assert s.sent == 1


def test_case_53_pause_withdraws_the_queued_wake_uncounted() -> None:
    s = queued()
    assert s.pause().ok
    assert s.view() == View("paused", "user", 1)
    s.run_until("+30m")
    assert s.sent == 1
    assert s.resume().ok
    s.run_until("+39m")
    assert s.iterations == [0, 30 * MINUTE]


def test_case_54_resume_withdraws_a_pause_intent() -> None:
    s = running()
    s.pause()
    assert s.resume().ok
    s.run_until("+5m")
    assert s.view() == View("waiting", n=1, wakes=1)


def test_case_54_stop_cannot_be_withdrawn() -> None:
    s = running()
    s.stop()
    assert not s.resume().ok
    s.run_until("+5m")
    assert s.view() == View("stopped", n=1)


@pytest.mark.parametrize("order", ["stop pause", "pause stop"])
def test_stop_prevails_over_pause(order: str) -> None:
    s = running()
    for command in order.split():
        s.pause() if command == "pause" else s.stop()
    s.run_until("+5m")
    assert s.view() == View("stopped", n=1)


def test_resume_without_anything_to_resume_is_refused() -> None:
    for s in (running(), waiting(), queued()):
        assert not s.resume().ok
    assert not Scenario.scripted().resume().ok


def test_commands_without_a_loop_are_refused() -> None:
    s = Scenario.scripted()
    for command in (s.pause, s.stop, s.resume, lambda: s.update(every="5m")):
        assert not command().ok
    assert (s.loop, s.journal) == (None, [])


@pytest.mark.parametrize("reason", ["user", "blocked"])
def test_case_55_pause_twice_is_no_second_record(reason: str) -> None:
    s = waiting() if reason == "user" else Scenario.scripted(says("block"))
    if reason == "user":
        s.pause()
    else:
        s.start()
        s.run_until("+1m")
    before, records = s.view(), len(s.journal)
    reply = s.pause()
    assert reply.ok
    assert reply.message
    assert (s.view(), len(s.journal)) == (before, records)


@pytest.mark.parametrize(("at", "wake"), [("+7m", 10 * MINUTE), ("+10m", 10 * MINUTE), ("+3h", 3 * HOUR)])
def test_case_57_resume_keeps_the_due_or_runs_once(at: str, wake: int) -> None:
    s = waiting()
    s.pause()
    s.run_until(at)
    assert s.resume().ok
    s.run_until(wake + 9 * MINUTE)
    assert s.iterations == [0, wake]


def test_case_58_resume_at_the_iteration_limit() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+9h")
    limit = View("paused", "iteration_limit", 50, events=("iteration_limit",))
    assert s.view() == limit
    assert not s.resume().ok
    assert s.view() == limit
    assert s.update(max_iterations=100).ok
    assert s.view() == replace(limit, maximum=100)
    assert s.resume().ok
    assert s.view() == View("running", None, 51, 100, events=("iteration_limit",))
    assert "Iteration: 51 of 100" in s.prompts[-1].text


def test_case_59_stop_on_paused_cancels_the_deadline() -> None:
    s = waiting()
    s.pause()
    assert s.stop().ok
    s.run_until("+48h")
    assert s.view() == View("stopped", n=1)
    assert next_deadline(s.live) == next_deadline(None)


@pytest.mark.parametrize("reason", list(PauseReason))
def test_case_197_stop_from_every_pause(reason: PauseReason) -> None:
    s = waiting()
    s.loop = replace(s.live, phase=Paused(reason))
    assert s.stop().ok
    assert s.view() == View("stopped", n=1)
    assert not s.stop().ok


@pytest.mark.parametrize("where", [running, waiting, queued])
def test_case_197_stop_from_every_active_state(where: object) -> None:
    assert callable(where)
    s = where()
    assert s.stop().ok
    s.run_until("+1h")
    assert s.live.state is State.STOPPED
    assert not s.stop().ok


def test_an_unknown_version_allows_only_stop() -> None:
    s = waiting()
    s.loop = replace(s.live, phase=Paused(PauseReason.UNKNOWN_VERSION))
    assert not s.resume().ok
    assert not s.update(every="20m").ok
    assert not s.start("other").ok
    assert s.stop().ok


def test_resume_does_not_withdraw_a_fork() -> None:
    """L-117, L-118: what is armed again here could be armed on two branches."""
    s = running()
    s.fork()
    assert not s.resume().ok
    s.run_until("+5m")
    assert s.view() == View("paused", "fork", n=1)
