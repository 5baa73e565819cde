"""The deadline (cases 74-86)."""

from __future__ import annotations

import pytest

from loopsup.core.effects import Reply
from loopsup.core.events import Ticked
from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import Attention, AttentionStatus, Moment
from loopsup.core.step import next_deadline
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, omits, policy_of, says

EXPIRED = View("paused", "duration_limit", 1, events=("duration_limit",))


def started(*turns: Turn, every: str = "24h") -> Scenario:
    s = Scenario.scripted(*turns)
    s.start(policy=policy_of(every))
    return s


# ---- 7. the deadline ------------------------------------------------------------------------------


def test_case_74_the_deadline_while_waiting() -> None:
    s = started()
    s.run_before("+24h")
    assert s.view() == View("waiting", n=1)
    s.run_until("+24h")
    assert s.view() == EXPIRED
    (attention,) = s.announced
    assert attention == Attention(
        AttentionStatus.DURATION_LIMIT,
        attention.summary,
        "extension",
        attention.text,
        iteration_count=1,
        max_iterations=50,
        protocol_retry_count=0,
        calendar_elapsed_ms=DAY,
        deadline_remaining_ms=0,
        ended_at=T0.wall + DAY,
        observed_at=T0.wall + DAY,
    )
    assert attention.summary
    assert attention.text
    assert s.live.last_attention == attention


@pytest.mark.parametrize("reason", ["user", "blocked", "protocol_error", "fork"])
def test_case_75_the_deadline_while_paused(reason: str) -> None:
    script = {"blocked": [says("block")], "protocol_error": [omits(), omits()]}.get(reason, [])
    s = started(*script)
    s.run_until("+1h")
    if reason == "user":
        s.pause()
    if reason == "fork":
        s.fork()
    before = s.events
    assert s.view().reason == reason
    s.run_until("+24h")
    assert (s.view().reason, s.events) == ("duration_limit", (*before, "duration_limit"))
    assert not s.resume().ok


def test_case_77_the_deadline_while_queued() -> None:
    s = Scenario.scripted()
    s.start()
    s.user_turn("19h", at="+6h")
    s.run_until("+23h")
    assert s.view().queued == 1
    s.run_until("+30h")
    assert s.view() == View("paused", "duration_limit", 36, events=("duration_limit",))
    assert s.sent == 36


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("continue", EXPIRED),
        ("block", EXPIRED),
        ("complete", View("completed", n=1, events=("duration_limit", "completed"))),
        ("fail", View("failed", n=1, events=("duration_limit", "failed"))),
    ],
)
def test_case_78_the_deadline_under_an_iteration(verb: str, view: View) -> None:
    s = started(says(verb, lasts="24h30m"))
    s.run_until("+24h")
    assert s.view() == EXPIRED
    assert s.live.flight is not None, "the iteration goes on"
    s.run_until("+25h")
    assert s.view() == view
    assert s.live.last_decision is not None
    assert str(s.live.last_decision.verb) == verb
    assert s.live.flight is None
    assert s.sent == 1
    s.run_until("+72h")
    assert s.view() == view


@pytest.mark.parametrize(("verb", "state"), [("complete", "completed"), ("fail", "failed")])
def test_a_final_decision_accepted_before_the_deadline_prevails(verb: str, state: str) -> None:
    s = started(says(verb, lasts="25h", decides_after="23h"))
    s.run_until("+24h30m")
    assert (s.live.state, s.events) == ("running", ())
    s.run_until("+48h")
    assert s.view() == View(state, n=1, events=(state,))


@pytest.mark.parametrize("verb", ["continue", "block"])
def test_other_decisions_do_not_hold_the_deadline_off(verb: str) -> None:
    s = started(says(verb, lasts="25h", decides_after="23h"))
    s.run_until("+48h")
    assert s.view() == EXPIRED


def test_a_decision_exactly_at_the_deadline_comes_after_it() -> None:
    s = started(says("complete", lasts="25h", decides_after="24h"))
    s.run_until("+48h")
    assert s.events == ("duration_limit", "completed")


def test_case_79_the_deadline_under_a_stop_intent() -> None:
    s = started(omits("25h"))
    s.run_until("+1h")
    s.stop()
    s.run_until("+48h")
    assert s.view() == View("stopped", n=1)


def test_the_deadline_prevails_over_a_pause_intent() -> None:
    s = started(omits("25h"))
    s.run_until("+1h")
    s.pause()
    s.run_until("+48h")
    assert s.view() == EXPIRED


def test_a_stop_after_the_deadline_under_an_iteration() -> None:
    s = started(says("complete", lasts="25h"))
    s.run_until("+24h30m")
    assert s.stop().ok
    s.run_until("+26h")
    assert (s.live.state, s.events) == ("stopped", ("duration_limit",))


def give(s: Scenario, command: str) -> Reply:
    match command:
        case "stop":
            return s.stop()
        case "pause":
            return s.pause()
        case "resume":
            return s.resume()
        case _:
            return s.update(for_="48h")


@pytest.mark.parametrize("command", ["stop", "pause", "resume", "update"])
def test_a_command_exactly_at_the_deadline_goes_first(command: str) -> None:
    s = started()
    s.run_until("+1h")
    if command == "resume":
        s.pause()
    s.run_before("+24h")
    reply = give(s, command)
    s.run_until("+24h")
    expected = {
        "stop": View("stopped", n=1),
        "pause": EXPIRED,
        "resume": EXPIRED,
        "update": View("running", n=2),  # the wake due at +24h is now before the deadline
    }[command]
    if command == "update":
        assert reply.ok
        assert (s.iterations, s.events) == ([0, DAY], ())
    else:
        assert (s.view(), s.sent) == (expected, 1)


@pytest.mark.parametrize("command", ["stop", "pause", "resume", "update"])
def test_a_command_after_the_deadline_finds_it_materialised(command: str) -> None:
    s = started()
    s.run_until("+1h")
    late = Moment(T0.wall + DAY + 1, T0.mono + DAY + 1)
    s.now = late  # the timer has not been served yet
    records = len(s.journal)
    ok = give(s, command).ok
    assert (s.events, s.announced[0].ended_at) == (("duration_limit",), T0.wall + DAY)
    assert ok is (command != "resume")
    assert isinstance(s.journal[records].event, Ticked)


def test_case_81_an_opening_after_the_deadline_materialises_before_resume() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+2h")
    s.close()
    s.run_until("+30h")
    s.open()
    assert not s.resume().ok
    assert s.view() == View("paused", "duration_limit", 13, events=("duration_limit",))
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + DAY, T0.wall + 30 * HOUR)
    assert (attention.calendar_elapsed_ms, attention.deadline_remaining_ms) == (DAY, 0)


def test_case_81_the_same_after_a_crash() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+2h")
    s.crash()
    s.run_until("+30h")
    s.open()
    assert s.view() == View("paused", "duration_limit", 13, events=("duration_limit",))
    assert s.announced[0].observed_at == T0.wall + 30 * HOUR


def test_case_82_the_horizon_runs_while_the_session_is_closed() -> None:
    s = Scenario.scripted(says("continue"), says("continue"), default=says("continue", lasts="2h"))
    s.start(policy=policy_of("3h"))
    s.run_until("+2h")
    s.close()
    s.run_until("+23h")
    s.open()
    assert s.view() == View("paused", "session_closed", 1)
    assert s.resume().ok
    s.run_until("+23h30m")
    assert s.view() == View("waiting", n=2), "the next wake would lie beyond the deadline"
    s.run_until("+24h")
    assert s.view() == View("paused", "duration_limit", 2, events=("duration_limit",))


def test_case_83_refused_resumes_are_no_events() -> None:
    s = started()
    s.run_until("+25h")
    for _ in range(2):
        reply = s.resume()
        assert not reply.ok
        assert reply.message
    assert s.view() == EXPIRED


def test_case_86_the_last_iteration_continues_exactly_at_the_deadline() -> None:
    s = Scenario.scripted(says("continue", lasts="24h"))
    s.start(policy=policy_of(max_iterations=1))
    s.run_until("+30h")
    assert s.view() == View("paused", "duration_limit", 1, 1, events=("duration_limit",))


def test_a_resume_during_the_late_iteration_takes_it_back_without_a_new_one() -> None:
    s = started(says("continue", lasts="26h"), every="1h")
    s.run_until("+24h30m")
    assert s.view() == EXPIRED
    assert not s.resume().ok
    assert s.update(for_="48h").ok
    assert s.view() == EXPIRED
    assert s.resume().ok
    assert s.view() == View("running", n=1, events=("duration_limit",))
    s.run_until("+26h")
    assert s.view() == View("waiting", n=1, events=("duration_limit",), wakes=1)
    s.run_until("+27h")
    assert s.iterations == [0, 27 * HOUR]


def test_an_extended_horizon_does_not_forget_that_a_resume_is_needed() -> None:
    s = started(says("continue", lasts="25h"), every="1h")
    s.run_until("+24h30m")
    s.update(for_="48h")
    s.run_until("+47h")
    assert (s.view(), s.sent) == (EXPIRED, 1)


def test_the_deadline_is_armed_in_every_state_that_can_go_on() -> None:
    s = Scenario.scripted(says("continue", lasts="5m"))
    s.start()
    at = T0.wall + DAY
    assert next_deadline(s.live).wall == at  # running
    s.run_until("+6m")
    due = next_deadline(s.live)  # waiting: the wake comes first, on both clocks
    assert (due.wall, due.mono) == (T0.wall + 15 * MINUTE, T0.mono + 15 * MINUTE)
    s.user_turn("5m", at="+14m").run_until("+15m")
    due = next_deadline(s.live)  # queued
    assert (due.wall, due.mono) == (at, None)
    s.pause()
    due = next_deadline(s.live)
    assert (due.wall, due.mono) == (at, None)
    s.stop()
    due = next_deadline(s.live)
    assert (due.wall, due.mono) == (None, None)
