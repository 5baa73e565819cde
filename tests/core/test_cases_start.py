"""Starting a loop: defaults, bounds, first wake (cases 1-13)."""

from __future__ import annotations

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import Auto, Fixed, Loop, Policy
from tests.support.scenario import Scenario
from tests.support.script import T0, View, call, ms, policy_of, says


def test_case_1_the_first_iteration_is_immediate_and_says_everything() -> None:
    s = Scenario.scripted(says("continue", lasts="1m"))
    reply = s.start("obj")
    assert reply.ok
    assert s.view() == View("running", n=1)
    (prompt,) = s.prompts
    assert prompt.at == 0
    lines = prompt.text.splitlines()
    assert lines[0] == "[loop iteration]"
    for line in ("Objective (verbatim): obj", "Iteration: 1 of 50", "Rhythm: fixed 10m", "Time to deadline: 24h"):
        assert line in lines
    assert any(line.startswith("Calendar time elapsed: 0") for line in lines)
    assert "none" in next(line for line in lines if line.startswith("Last decision/summary/evidence:"))


def test_case_1_the_new_loop_is_recorded_with_the_defaults() -> None:
    s = Scenario.scripted()
    s.start("obj")
    loop = s.live
    assert loop.policy == Policy(Fixed(10 * MINUTE), MINUTE, 24 * HOUR, 24 * HOUR, 50)
    assert (loop.objective, loop.started_at, loop.deadline_at) == ("obj", T0.wall, T0.wall + DAY)
    assert (loop.iteration_count, loop.prompts_sent, loop.protocol_retry_count, loop.llm_calls) == (1, 1, 0, 0)
    assert loop.last_decision is None


@pytest.mark.parametrize("paused", [False, True], ids=["waiting", "paused"])
def test_case_2_a_second_start_is_refused(paused: bool) -> None:
    s = Scenario.scripted()
    s.start("first")
    s.run_until("+5m")
    if paused:
        s.pause()
    journal = list(s.journal)
    reply = s.start("second")
    assert (reply.ok, reply.kind) == (False, "refused")
    assert reply.message
    assert s.journal == journal
    assert s.live.objective == "first"


@pytest.mark.parametrize("busy", [False, True], ids=["running", "queued"])
def test_case_2_a_second_start_is_refused_in_flight(busy: bool) -> None:
    s = Scenario.scripted(says("continue", lasts="1h"))
    if busy:
        s.user_turn("1h")
    s.start("first")
    assert s.live.state == ("queued" if busy else "running")
    assert not s.start("second").ok


@pytest.mark.parametrize("end", ["complete", "fail", "stop"])
def test_case_3_a_start_after_the_end_is_a_new_loop(end: str) -> None:
    s = Scenario.scripted(says("continue"), says("complete" if end == "stop" else end))
    s.start("first")
    s.run_until("+5m")
    if end == "stop":
        s.stop()
    s.run_until("+10m")
    old = s.live
    assert old.terminal
    assert s.start("second").ok
    new = s.live
    assert new.id != old.id
    assert new == Loop(
        new.id,
        "second",
        old.policy,
        T0.wall + 10 * MINUTE,
        new.phase,
        iteration_count=1,
        prompts_sent=1,
        generation=new.generation,
    )


USAGE = {
    "5 zero iterations": policy_of(max_iterations=0),
    "5 negative iterations": policy_of(max_iterations=-1),
    "5 for zero": policy_of(for_=0),
    "5 for negative": policy_of(for_=-1),
    "6 every under the minimum": policy_of("59s"),
    "6 every over the maximum": policy_of("24h1s", for_="2d"),
    "8 min above max": policy_of("10m", min_delay="20m", max_delay="5m"),
}


@pytest.mark.parametrize("policy", USAGE.values(), ids=USAGE.keys())
def test_a_start_outside_the_bounds_is_refused_whole(policy: Policy) -> None:
    s = Scenario.scripted()
    reply = s.start("obj", policy=policy)
    assert (reply.ok, reply.kind) == (False, "usage")
    assert reply.message
    assert (s.loop, s.journal, s.prompts) == (None, [], [])


@pytest.mark.parametrize("objective", ["", "   ", "\n\t "])
def test_case_5_a_blank_objective_is_refused(objective: str) -> None:
    s = Scenario.scripted()
    reply = s.start(objective)
    assert (reply.ok, reply.kind) == (False, "usage")
    assert (s.loop, s.journal) == (None, [])


ACCEPTED = {
    "6 every 60s": policy_of("60s"),
    "6 every 1m": policy_of("1m"),
    "6 every 24h": policy_of("24h"),
    "7 lower minimum": policy_of("30s", min_delay="30s"),
    "12 one iteration": policy_of(max_iterations=1),
}


@pytest.mark.parametrize("policy", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_start_at_the_bounds_is_accepted(policy: Policy) -> None:
    s = Scenario.scripted()
    assert s.start("obj", policy=policy).ok
    assert s.live.policy == policy
    assert s.view() == View("running", n=1, maximum=policy.max_iterations)


def test_case_10_auto_with_a_first_wait() -> None:
    s = Scenario.scripted(default=says("continue", "1h"))
    assert s.start("obj", after="5m", policy=policy_of("auto")).ok
    assert s.live.policy.rhythm == Auto()
    assert s.view() == View("waiting", wakes=1)
    s.run_before("+5m")
    assert s.prompts == []
    s.run_until("+5m")
    assert s.iterations == [5 * MINUTE]
    assert s.live.started_at == T0.wall, "the first wait counts in the horizon (L-23)"
    assert s.live.deadline_at == T0.wall + DAY


@pytest.mark.parametrize(
    ("after", "ok", "warned"),
    [
        ("13h", True, True),
        ("12h", True, True),
        ("11h", True, False),
        ("24h", False, False),
        ("25h", False, False),
        ("30s", True, False),
    ],
)
def test_case_11_the_first_wait_against_the_horizon(after: str, ok: bool, warned: bool) -> None:
    s = Scenario.scripted()
    reply = s.start("obj", after=after)
    assert (reply.ok, bool(reply.warnings)) == (ok, warned)
    if ok:
        s.run_until(after)
        assert s.iterations == [ms(after)]
    else:
        assert reply.kind == "usage"
        assert s.journal == []


def test_case_13_the_only_iteration_ends_at_its_settlement() -> None:
    s = Scenario.scripted(says("continue", lasts="1m"))
    s.start("obj", policy=policy_of(max_iterations=1))
    s.run_until("+1m")
    assert s.view() == View("paused", "iteration_limit", 1, 1, 0, ("iteration_limit",))
    assert s.announced[0].ended_at == T0.wall + MINUTE
    s.run_until("+11m")
    assert s.sent == 1


def test_a_start_while_the_agent_is_busy_is_queued_and_runs_once() -> None:
    s = Scenario.scripted()
    s.user_turn("7m")
    s.start("obj")
    assert s.view() == View("queued", queued=1)
    s.run_until("+7m")
    assert s.iterations == [7 * MINUTE]


def test_the_agent_is_started_when_the_first_prompt_is_due() -> None:
    s = Scenario.scripted()
    s.up = False
    s.start("obj", after="5m")
    s.run_before("+5m")
    assert s.starts == 0
    s.run_until("+5m")
    assert (s.starts, s.iterations) == (1, [5 * MINUTE])


def test_the_objective_is_in_every_envelope_byte_for_byte() -> None:
    objective = "  two  spaces\n{braces} %s ${HOME} \"quotes\" 'single'\n\ttab\n\n"
    s = Scenario.scripted(default=says("continue", lasts="1m"))
    s.start(objective)
    s.run_until("+1h")
    assert len(s.prompts) > 3
    assert all(objective in prompt.text for prompt in s.prompts)
    assert s.live.objective == objective


def test_a_decision_needs_a_loop() -> None:
    s = Scenario.scripted()
    assert not s.control(call("complete"), None).ok
    assert s.loop is None
