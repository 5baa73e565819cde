"""Case 191: random lives of a session, and what must hold after every step of each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from loopsup.core.events import (
    DecisionCalled,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
)
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.misfire import Misfire, Once, Skip, Within
from loopsup.core.model import AbortReason, Loop, Moment, Stamp, State
from loopsup.core.step import advance, step
from tests.support.invariants import Invariants, signature
from tests.support.scenario import Scenario
from tests.support.script import T0, Turn, call, policy_of, rhythm_of

SPANS = st.one_of(
    st.sampled_from([0, 1, SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 10 * MINUTE, HOUR, DAY]),
    st.integers(min_value=0, max_value=3 * HOUR),
)
DELAYS = st.sampled_from([None, None, "1m", "10m", "5h", "59s"])
CALLS = st.one_of(
    st.builds(call, st.sampled_from(["continue", "continue", "continue", "complete", "fail", "block"]), DELAYS),
    st.sampled_from([None, {}, {"decision": "continue"}, call("go on")]),
)
TURNS = st.builds(
    Turn,
    lasts=SPANS,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    decides_after=st.sampled_from([None, None, 0]),
    turns=st.integers(min_value=0, max_value=3),
    refused=st.sampled_from([None, None, None, "no"]),
    busy=st.booleans(),
    dies=st.sampled_from([None, None, None, "exit status 1"]),
    aborted=st.sampled_from([None, None, None, *AbortReason]),
)
EVERY = st.sampled_from(["1m", "10m", "1h", "auto"])
FOR = st.sampled_from(["5m", "1h", "24h", "48h"])
MISFIRES = st.sampled_from([Once(), Skip(), Within(10 * MINUTE)])
MAXIMA = st.integers(min_value=1, max_value=5)


class Session(RuleBasedStateMachine):
    """Whoever can act on a session acts, in any order, on jumping clocks."""

    @initialize(every=EVERY, for_=FOR, maximum=MAXIMA, misfire=MISFIRES)
    def begin(self, every: str, for_: str, maximum: int, misfire: Misfire) -> None:
        self.eyes = Invariants()
        self.s = Scenario(watch=self.eyes)
        self.s.start(policy=replace(policy_of(every, for_=for_, max_iterations=maximum), misfire=misfire))
        self.eyes.maximum = maximum

    # ---- time

    @rule(span=SPANS)
    def run(self, span: int) -> None:
        self.s.run_for(span)

    @rule(jump=st.sampled_from([-30 * HOUR, -2 * HOUR, -1, 1, 2 * HOUR, 30 * HOUR]))
    def set_wall(self, jump: int) -> None:
        self.s.set_wall(jump)

    @rule(span=SPANS)
    def suspend(self, span: int) -> None:
        self.s.suspend(span)

    @rule()
    def stand_on_the_deadline(self) -> None:
        if self.s.loop is not None and self.s.now.wall < self.s.loop.deadline_at:
            self.s.run_before(self.s.loop.deadline_at - T0.wall)

    # ---- the agent

    @rule(turn=TURNS)
    def next_turn(self, turn: Turn) -> None:
        self.s.script.append(turn)

    @rule(lasts=SPANS)
    def user_turn(self, lasts: int) -> None:
        if self.s.owned and self.s.up:
            self.s.user_turn(lasts)

    @rule(reason=st.sampled_from(list(AbortReason)))
    def abort(self, reason: AbortReason) -> None:
        self.s.abort(reason)

    @rule(failures=st.integers(min_value=0, max_value=7))
    def lose_agent(self, failures: int) -> None:
        if self.s.owned and self.s.up:
            self.s.start_failures.extend(["not there"] * failures)
            self.s.lose_agent()

    @rule(arguments=CALLS, current=st.booleans(), shift=st.integers(min_value=-1, max_value=1))
    def decide(self, arguments: object, current: bool, shift: int) -> None:
        if self.s.owned:
            self.s.control(arguments, self.stamp(shift) if current else None)

    @rule(shift=st.sampled_from([-1, 1]), which=st.integers(min_value=0, max_value=4))
    def stale_report(self, shift: int, which: int) -> None:
        stamp = self.stamp(shift)
        if not self.s.owned or stamp is None:
            return
        before = self.s.loop
        reports = (
            HandoverAccepted(stamp),
            HandoverRefused(stamp, "late"),
            HandoverRefused(stamp, "late", busy=True),
            IterationSettled(stamp, idle=False, turns=2),
            DecisionCalled(stamp, call("complete")),
        )
        steps = advance(before, reports[which], self.s.now)
        assert steps[-1].loop == (steps[0].loop if len(steps) == 2 else before)

    def stamp(self, shift: int) -> Stamp | None:
        loop = self.s.loop
        if loop is None or (stamp := loop.stamp()) is None:
            return None
        return replace(stamp, generation=stamp.generation + shift)

    # ---- people

    @rule(every=EVERY, for_=FOR, maximum=MAXIMA, after=st.sampled_from([None, "1m", "1h", "25h"]))
    def start(self, every: str, for_: str, maximum: int, after: str | None) -> None:
        if not self.s.owned:
            return
        before = self.s.loop
        reply = self.s.start(after=after, policy=policy_of(every, for_=for_, max_iterations=maximum))
        if reply.ok:
            assert before is None or before.terminal
            self.eyes.maximum = maximum

    @rule()
    def pause(self) -> None:
        if self.s.owned:
            self.s.pause()

    @rule()
    def resume(self) -> None:
        if self.s.owned:
            self.s.resume()

    @rule()
    def stop(self) -> None:
        if self.s.owned:
            self.s.stop()

    @rule(
        every=st.none() | EVERY,
        for_=st.none() | FOR,
        maximum=st.none() | MAXIMA,
        low=st.sampled_from([None, None, "30s", "1m", "1h"]),
        misfire=st.none() | MISFIRES,
    )
    def update(
        self, every: str | None, for_: str | None, maximum: int | None, low: str | None, misfire: Misfire | None
    ) -> None:
        if not self.s.owned:
            return
        self.eyes.maximum = max(self.eyes.maximum, maximum or 0)
        before = self.s.loop
        reply = self.s.update(every=every, for_=for_, max_iterations=maximum, min_delay=low, misfire=misfire)
        if reply.ok and every is not None:
            assert before is not None
            assert self.s.live.policy.rhythm == rhythm_of(every)

    # ---- the session

    @rule()
    def close(self) -> None:
        if self.s.owned:
            self.s.close()

    @rule()
    def crash(self) -> None:
        self.s.crash()

    @rule(turns=st.integers(min_value=0, max_value=2))
    def open(self, turns: int) -> None:
        if not self.s.owned:
            self.s.open(turns=turns)
            assert signature(self.s.loop)[0] not in {"waiting", "queued", "running"}, "never armed again by itself"

    @rule(away=SPANS, mono=st.sampled_from([None, 0, 10**12]))
    def reload(self, away: int, mono: int | None) -> None:
        if not self.s.owned or (self.s.loop is not None and self.s.loop.flight is not None):
            return
        self.s.leave().run_for(away)
        if mono is not None:
            self.s.now = Moment(self.s.now.wall, mono)
        self.s.open(reload=True)

    @rule()
    def fork(self) -> None:
        if self.s.owned:
            self.s.fork()

    @rule(data=st.data())
    def go_to_another_branch(self, data: st.DataObject) -> None:
        if not self.s.owned or (self.s.loop is not None and self.s.loop.flight is not None):
            return
        self.s.fork()
        here = self.s.loop
        self.s.branch(None)
        assert self.s.loop is None
        if here is not None and data.draw(st.booleans()):
            self.s.branch(here)
            assert signature(self.s.loop)[0] not in {"waiting", "queued", "running"}

    # ---- at every moment

    @invariant()
    def the_journal_is_the_truth(self) -> None:
        if not hasattr(self, "s"):
            return
        if self.s.journal:
            assert self.s.journal[-1].loop == self.s.loop
        loop = self.s.loop
        if loop is not None and loop.state is State.RUNNING and self.s.owned and self.s.up and loop.flight:
            assert self.s.prompts, "running without a prompt"

    def teardown(self) -> None:
        """Replay of every prefix of the journal gives the states that were held."""
        if not hasattr(self, "s"):
            return
        held: Loop | None = None
        for record in self.s.journal:
            again = step(held, record.event, record.now)
            assert again.loop == record.loop
            held = record.loop
        taken = [p for p in self.s.prompts if p.taken]
        assert len({(p.stamp, p.kind) for p in taken}) == len(taken), "no prompt is given twice"


def test_random_lives() -> None:
    run_state_machine_as_test(Session, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_random_lives(part: int) -> None:
    """In four parts, for as many test processes; each has random lives of its own."""
    run_state_machine_as_test(Session, settings=settings(max_examples=2500, stateful_step_count=30, deadline=None))
