"""Random lives of a session's rules, and what must hold after every step of each."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from loopsup.core.model import Moment
from loopsup.core.rule_events import (
    Cancelled,
    Configured,
    DecisionAccepted,
    Elapsed,
    Inject,
    Injected,
    Interrupt,
    Matched,
    NotInjected,
    Prompted,
    Record,
    Released,
    Restored,
    RuleEffect,
    RuleEvent,
    Silenced,
    TooSlow,
    Triggered,
    TurnEnded,
    TurnStarted,
)
from loopsup.core.rule_state import MAX_INTERRUPTIONS, RuleState, next_due, opened, step
from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings

NAMES = ("a", "b", "c")
RULES = (
    Rule("a", "a.md", "No a.", ("a",)),
    Rule("b", "b.md", "No b.", ("b",), repeat=RepeatMode.AFTER_GAP, gap=0),
    Rule("c", "c.md", "No c.", ("c",), repeat=RepeatMode.ONCE, context=ContextMode.KEEP),
)
SOME = st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple)
SETTINGS = st.builds(
    RuleSettings,
    enabled=st.sampled_from([True, True, True, False]),
    context=st.sampled_from(ContextMode),
    repeat=st.sampled_from(RepeatMode),
    gap=st.integers(min_value=0, max_value=3),
)


class Life(RuleBasedStateMachine):
    """One session; the model beside it knows only what a person would see."""

    def __init__(self) -> None:
        super().__init__()
        self.state = RuleState()
        self.now = Moment(1_000_000, 0)
        self.turns = 0
        self.cuts = 0  # in this request
        self.open: tuple[int, set[str]] | None = None  # token and rules that were announced and not yet ended
        self.asked: Inject | None = None
        self.once: set[str] = set()  # injected, as recorded, on this branch

    @initialize(given=SETTINGS, injected=SOME)
    def begin(self, given: RuleSettings, injected: tuple[str, ...]) -> None:
        self.state = opened(RULES, given, injected)
        self.once = set(injected)
        self.tell(Prompted(True))

    def tell(self, event: RuleEvent) -> tuple[RuleEffect, ...]:
        before = self.state
        made = step(before, event, self.now)
        self.state = made.state
        for effect in made.effects:
            self.see(before, event, effect)
        return made.effects

    def see(self, before: RuleState, event: RuleEvent, effect: RuleEffect) -> None:
        match effect:
            case Interrupt(token):
                assert self.open is None
                assert before.watching
                assert not before.decided
                assert self.cuts < MAX_INTERRUPTIONS
                self.cuts += 1
                self.open = (token, set())
            case Triggered(rules):
                assert self.open is not None
                names = {each.name for each in rules}
                assert not names & self.open[1], "announced twice in one window"
                assert not names & (before.silenced | before.off)
                for each in rules:
                    mode = each.repeat or before.settings.repeat
                    assert each.name not in self.once or mode is RepeatMode.AFTER_GAP
                self.open[1].update(names)
            case Inject(token, generation, turn, _, rules, text):
                assert self.open is not None
                assert (token, {each.name for each in rules}) == self.open
                assert (
                    (generation, turn) == (before.window.generation, before.window.turn) if before.window else False
                )
                assert all(each.content in text for each in rules)
                self.asked = effect
            case Record(names, injected):
                assert self.open is not None
                assert set(names) == self.open[1]
                self.once |= set(names)
                assert set(injected) == self.once
                self.open = self.asked = None
            case Released(names, _):
                assert self.open is not None
                assert set(names) == self.open[1]
                assert self.state.injected == before.injected or isinstance(event, Restored)
                self.open = self.asked = None
            case Silenced():
                pass

    @rule(fresh=st.booleans())
    def prompted(self, fresh: bool) -> None:
        self.cuts = 0 if fresh else self.cuts
        self.tell(Prompted(fresh))
        assert self.open is None

    @rule()
    def turn_starts(self) -> None:
        self.turns += 1
        self.tell(TurnStarted(f"t{self.turns}"))

    @rule()
    def turn_ends(self) -> None:
        counted = self.state.turns
        self.tell(TurnEnded())
        assert self.state.turns == counted + 1

    @rule(names=SOME, stale=st.sampled_from([False, False, False, True]))
    def matched(self, names: tuple[str, ...], stale: bool) -> None:
        window, turn = self.state.window, "t0" if stale else f"t{self.turns}"
        effects = self.tell(Matched(turn, names))
        if stale or not names:
            assert effects == ()
        if window is not None:
            assert not any(isinstance(effect, Interrupt) for effect in effects)

    @rule(ms=st.sampled_from([0, 1, 20, 50, 51, 1000]), back=st.sampled_from([0, 0, 3_600_000]))
    def time_passes(self, ms: int, back: int) -> None:
        self.now = Moment(self.now.wall + ms - back, self.now.mono + ms)
        due = next_due(self.state)
        effects = self.tell(Elapsed())
        if due is not None and due.reached(self.now):
            assert len(effects) == 1
            assert next_due(self.state) is None
        else:
            assert effects == ()

    @rule(right=st.sampled_from([True, True, False]))
    def injected(self, right: bool) -> None:
        asked = self.asked
        effects = self.tell(Injected(asked.token if asked and right else 0))
        assert bool(effects) is (asked is not None and right)

    @rule()
    def not_injected(self) -> None:
        asked = self.asked
        self.tell(NotInjected(asked.token if asked else 0, "no"))
        assert self.asked is None

    @rule(event=st.sampled_from([Cancelled("aborted"), DecisionAccepted()]))
    def taken_away(self, event: RuleEvent) -> None:
        self.tell(event)
        assert not self.state.pending
        if isinstance(event, DecisionAccepted):
            assert not self.state.watching

    @rule(names=SOME)
    def branch(self, names: tuple[str, ...]) -> None:
        self.tell(Restored(names))
        self.once = set(names)
        assert set(self.state.injected) == set(names)

    @rule(names=SOME)
    def slow(self, names: tuple[str, ...]) -> None:
        self.tell(TooSlow(names))

    @rule(given=SETTINGS)
    def configured(self, given: RuleSettings) -> None:
        self.tell(Configured(given))

    @invariant()
    def a_window_is_what_was_announced(self) -> None:
        window = self.state.window
        assert (window is None) is (self.open is None)
        if window is not None and self.open is not None:
            assert (window.token, set(window.names)) == self.open
            assert window.injecting is (self.asked is not None)
            assert not set(window.names) & {name for name in self.once if name == "c"}

    @invariant()
    def what_counts_as_injected_was_recorded(self) -> None:
        assert set(self.state.injected) == self.once
        assert all(0 <= at <= self.state.turns for at in self.state.injected.values())


def test_random_lives() -> None:
    run_state_machine_as_test(Life, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))  # type: ignore[no-untyped-call]
