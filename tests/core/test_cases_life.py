"""Close, crash, reload, fork, and what reaches a person (cases 94-118, 198, 199)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopsup.core.events import Close, Opened
from loopsup.core.limits import HOUR, MINUTE
from loopsup.core.model import TERMINAL, Delivery, Moment, Paused, PauseReason, State
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, View, call, omits, policy_of, says

# ---- 9. persistence and lifecycle -----------------------------------------------------------------


def test_case_94_a_close_pauses_and_nothing_is_armed_again() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    s.close()
    closed = View("paused", "session_closed", 1)
    assert s.view() == closed
    s.run_until("+3h")
    s.open()
    s.run_until("+5h")
    assert s.view() == closed
    assert s.sent == 1
    assert s.resume().ok
    s.run_for("5m")
    assert s.iterations == [0, 5 * HOUR]


def test_a_close_keeps_the_reason_of_a_pause() -> None:
    s = Scenario.scripted(says("block"))
    s.start()
    s.run_until("+1m")
    before = s.live
    s.close()
    assert s.live == before


def test_a_close_during_an_iteration_pauses_and_counts_its_turns() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    s.deliver(Close(turns=3))
    assert s.view() == View("paused", "session_closed", 1)
    assert (s.live.llm_calls, s.live.flight) == (3, None)


@pytest.mark.parametrize(("verb", "state"), [("complete", "completed"), ("fail", "failed")])
def test_a_close_after_a_final_decision_applies_it(verb: str, state: str) -> None:
    s = Scenario.scripted(says(verb, lasts="5m", decides_after="1m"))
    s.start()
    s.run_until("+2m")
    s.close()
    assert s.view() == View(state, n=1, events=(state,))


def test_a_close_under_a_stop_intent_is_a_stop() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    s.stop()
    s.close()
    assert s.view() == View("stopped", n=1)


def test_case_95_a_reload_keeps_the_wake() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+4m")
    before, records = s.view(), len(s.journal)
    s.leave().run_until("+6m")
    s.open(reload=True)
    assert s.view() == before
    assert all(r.loop is not None and r.loop.state is State.WAITING for r in s.journal[records:])
    s.run_until("+19m")
    assert s.iterations == [0, 10 * MINUTE]


@pytest.mark.parametrize("back", ["+10m", "+25m", "+9h"])
def test_case_95_a_reload_over_overdue_wakes_runs_one(back: str) -> None:
    s = Scenario.scripted(says("continue"), says("continue", lasts="1m"))
    s.start()
    s.run_until("+4m")
    s.leave().run_until(back)
    s.open(reload=True).run_for("1m")
    assert s.sent == 2
    assert s.view() == View("waiting", n=2, wakes=1)


def test_a_reload_arms_the_remaining_time_on_the_new_monotonic_clock() -> None:
    for mono in (0, T0.mono + 1000 * HOUR):
        s = Scenario.scripted()
        s.start()
        s.run_until("+4m")
        s.leave().run_until("+6m")
        s.now = Moment(s.now.wall, mono)
        s.open(reload=True)
        s.run_until("+15m")
        assert s.iterations == [0, 10 * MINUTE]


def test_a_reload_with_a_rewound_clock_still_wakes_after_the_remaining_time() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+4m")
    s.leave()
    s.now = Moment(s.now.wall, 0)
    s.open(reload=True)
    s.set_wall(-2 * HOUR)
    s.run_for("6m")
    assert s.sent == 2


def test_a_reload_over_the_deadline_materialises_late_and_fires_no_wake() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+4m")
    s.leave().run_until("+30h")
    s.open(reload=True).run_for("1h")
    assert s.view() == View("paused", "duration_limit", 1, events=("duration_limit",))
    (attention,) = s.announced
    assert (attention.ended_at, attention.observed_at) == (T0.wall + 24 * HOUR, T0.wall + 30 * HOUR)
    assert s.sent == 1


def test_a_reload_in_queued_keeps_the_one_wake() -> None:
    s = Scenario.scripted()
    s.start()
    s.user_turn("10m", at="+9m").run_until("+12m")
    s.leave().run_until("+13m")
    s.open(reload=True).run_for("1m")
    assert s.iterations == [0, 13 * MINUTE]


def test_case_98_a_crash_in_waiting() -> None:
    s = Scenario.scripted(omits(), says("continue"))
    s.start()
    s.run_until("+5m")
    kept = s.without_flight()
    s.crash().run_until("+30m")
    s.open()
    assert s.view() == View("paused", "supervisor_lost", 1, p=1)
    assert s.without_flight() == kept
    s.run_until("+2h")
    assert s.sent == 2
    assert s.resume().ok
    assert s.view() == View("running", n=2, p=1)
    s.run_until("+2h5m")
    assert s.iterations == [0, 2 * HOUR]


def test_resume_after_a_crash_keeps_a_due_that_has_not_come() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    s.crash().open()
    s.resume()
    s.run_until("+12m")
    assert s.iterations == [0, 10 * MINUTE]


def test_case_98_a_crash_in_running_counts_the_iteration() -> None:
    s = Scenario.scripted(omits("5m"))
    s.start()
    s.run_until("+1m")
    s.crash().open(turns=2)
    assert s.view() == View("paused", "supervisor_lost", 1)
    assert (s.live.llm_calls, s.live.prompts_sent, s.live.flight) == (2, 1, None)
    assert s.resume().ok
    s.run_until("+2m")
    assert s.iterations == [0, MINUTE], "an iteration was in flight: at once"


def test_case_99_a_crash_before_the_hand_over_counts_and_never_exceeds_the_maximum() -> None:
    s = Scenario.scripted(says("continue"), says("continue", lasts="5m"))
    s.start(policy=policy_of(max_iterations=2))
    s.run_until("+10m")
    (record,) = [r for r in s.journal if r.loop is not None and r.loop.iteration_count == 2][:1]
    s.leave()
    s.loop = record.loop
    s.open()
    assert s.view() == View("paused", "supervisor_lost", 2, 2)
    assert not s.resume().ok
    assert s.sent == 2


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("complete", View("completed", n=1, events=("completed",))),
        ("fail", View("failed", n=1, events=("failed",))),
        ("block", View("paused", "blocked", 1, events=("blocked",))),
        ("continue", View("paused", "supervisor_lost", 1)),
    ],
)
def test_a_crash_after_an_accepted_decision_applies_it(verb: str, view: View) -> None:
    s = Scenario.scripted(says(verb, lasts="5m", decides_after="1m"))
    s.start()
    s.run_until("+2m")
    s.crash().run_until("+1h")
    s.open(turns=1)
    assert s.view() == view
    assert s.live.last_decision is not None
    assert (s.live.last_decision.verb, s.live.llm_calls) == (verb, 1)


def test_a_final_decision_before_the_deadline_prevails_over_a_crash_across_it() -> None:
    s = Scenario.scripted(says("complete", lasts="30h", decides_after="1h"))
    s.start()
    s.run_until("+2h")
    s.crash().run_until("+40h")
    s.open()
    assert s.view() == View("completed", n=1, events=("completed",))


def test_a_crash_after_continue_keeps_the_next_wake() -> None:
    s = Scenario.scripted(says("continue", lasts="30m", decides_after="1m"))
    s.start()
    s.run_until("+2m")
    s.crash().open()
    before = s.sent
    assert s.resume().ok
    s.run_until("+3m")
    assert s.sent <= before + 1


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("close", "waiting"),
        ("close", "running"),
        ("crash", "waiting"),
        ("crash", "running"),
        ("reload", "waiting"),  # in an iteration it is refused (D-45)
    ],
)
def test_case_199_counters_and_policy_survive(end: str, state: str) -> None:
    s = Scenario.scripted(omits(), says("continue"), default=says("continue", lasts="5m"))
    s.start()
    s.run_until("+6m" if state == "waiting" else "+11m")
    assert s.live.state == state
    kept = s.without_flight()
    if end == "close":
        s.close()
    elif end == "crash":
        s.crash()
    else:
        s.leave()
    s.run_for("1m")
    s.open(reload=end == "reload")
    if state == "running":  # no settlement instant is lost, whether or not the cut is taken for one
        kept = replace(kept, last_settled_at=s.live.last_settled_at)
    assert s.without_flight() == kept


@pytest.mark.parametrize("end", ["complete", "fail", "stop"])
@pytest.mark.parametrize("reload", [False, True])
def test_opening_an_ended_loop_changes_nothing(end: str, reload: bool) -> None:
    s = Scenario.scripted(says("continue" if end == "stop" else end))
    s.start()
    s.run_until("+1m")
    s.stop() if end == "stop" else None
    before, records, events = s.live, len(s.journal), s.events
    assert before.state in TERMINAL
    s.crash().run_until("+48h")
    s.open(reload=reload)
    assert (s.live, len(s.journal), s.events) == (before, records, events)


def test_case_118_an_event_is_not_sent_again_after_a_crash() -> None:
    s = Scenario.scripted(says("block"))
    s.start()
    s.run_until("+1m")
    before = s.live
    s.crash().open()
    assert (s.live, s.events) == (before, ("blocked",))


def test_opening_an_empty_session() -> None:
    s = Scenario.scripted()
    s.open()
    assert (s.loop, s.journal) == (None, [])


def test_an_unknown_version_stays_through_an_opening() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    s.loop = replace(s.live, phase=Paused(PauseReason.UNKNOWN_VERSION))
    before = s.live
    s.deliver(Opened(reload=True))
    assert s.live == before
    assert s.events == ()


# ---- forks ----------------------------------------------------------------------------------------


def test_case_110_a_fork_during_an_iteration_applies_at_the_settlement() -> None:
    s = Scenario.scripted(says("continue", lasts="5m"))
    s.start()
    s.run_until("+1m")
    s.fork()
    assert s.view() == View("running", n=1)
    s.run_until("+5m")
    assert s.view() == View("paused", "fork", 1)
    s.run_until("+2h")
    assert s.sent == 1


@pytest.mark.parametrize("busy", [False, True], ids=["waiting", "queued"])
def test_a_fork_between_iterations_pauses_at_once(busy: bool) -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    if busy:
        s.user_turn("20m").run_until("+12m")
    s.fork()
    assert s.view() == View("paused", "fork", 1)
    s.run_until("+2h")
    assert s.sent == 1


def test_case_109_a_branch_without_the_loop_and_back() -> None:
    s = Scenario.scripted()
    s.start()
    s.run_until("+5m")
    waiting = s.live
    s.fork()
    marked = s.live
    s.branch(None)
    assert s.loop is None
    s.run_until("+2h")
    assert s.sent == 1
    s.branch(marked)
    assert s.view() == View("paused", "fork", 1)
    s.branch(None)
    s.branch(waiting)
    assert s.view() == View("paused", "fork", 1), "an active marked state never comes back armed"
    s.run_until("+4h")
    assert s.sent == 1


def test_calls_before_a_prompt_that_was_not_handed_over_are_not_counted_again() -> None:
    """A-08: a reminder waits behind a person's message when the supervisor is killed; what is recounted is old."""
    s = Scenario.scripted(omits("1m"))
    s.start()
    s.user_turn("5m")
    s.run_until("+2m")
    assert (s.flight.delivery, s.live.llm_calls) == (Delivery.PENDING, 1)
    s.crash().open(turns=1)
    assert s.view() == View("paused", "supervisor_lost", 1, p=1)
    assert s.live.llm_calls == 1


# ---- 10. what reaches a person ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pause", "stop", "close", "reload", "fork", "crash"])
@pytest.mark.parametrize("state", ["waiting", "running"])
def test_case_117_what_people_do_is_no_event(how: str, state: str) -> None:
    s = Scenario.scripted(default=says("continue", lasts="5m"))
    s.start()
    s.run_until("+1m" if state == "running" else "+6m")
    if how == "reload":
        s.run_until("+6m")
        s.leave().open(reload=True)
    elif how == "crash":
        s.crash().open()
    else:
        {"pause": s.pause, "stop": s.stop, "close": s.close, "fork": s.fork}[how]()
    s.run_until("+12m")
    assert s.events == ()


def test_every_event_tells_the_whole_count() -> None:
    s = Scenario.scripted(omits("1m"), Turn(MINUTE, (call("block", summary="stuck", evidence="asked"),)))
    s.start(policy=policy_of(max_iterations=7))
    s.run_until("+2m")
    (a,) = s.announced
    assert (a.iteration_count, a.max_iterations, a.protocol_retry_count) == (1, 7, 1)
    assert (a.calendar_elapsed_ms, a.deadline_remaining_ms) == (2 * MINUTE, 24 * HOUR - 2 * MINUTE)
    assert (a.status, a.source, a.summary, a.text) == ("blocked", "agent", "stuck", "asked")
