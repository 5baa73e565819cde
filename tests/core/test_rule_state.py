"""What comes of a rule that was found: the stories of one window, of repetition, of precedence."""

from __future__ import annotations

import pytest

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
from loopsup.core.rule_state import MAX_INTERRUPTIONS, WINDOW_MS, RuleState, next_due, opened, step
from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings, reminder

ZERO = Moment(1_000_000, 5_000)
A = Rule("a", ".loopsup/rules/a.md", "No a.", ("a",))
B = Rule("b", "~/b.md", "No b.", ("b",))
GAP = RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=2)


class Story:
    """A session's rules, told event by event."""

    def __init__(self, *rules: Rule, settings: RuleSettings | None = None, injected: tuple[str, ...] = ()) -> None:
        self.state = opened(rules or (A, B), settings or RuleSettings(), injected)
        self.now = ZERO

    def tell(self, *events: RuleEvent) -> list[RuleEffect]:
        effects: list[RuleEffect] = []
        for event in events:
            made = step(self.state, event, self.now)
            self.state = made.state
            effects += made.effects
        return effects

    def after(self, ms: int, *events: RuleEvent) -> list[RuleEffect]:
        self.now = self.now.plus(ms)
        return self.tell(*events)

    def turn(self, name: str = "t1") -> Story:
        self.tell(Prompted(fresh=True), TurnStarted(name))
        return self

    def violate(self, turn: str, *names: str) -> list[RuleEffect]:
        """A turn in which the rules are found, corrected, to its end."""
        found = self.tell(TurnStarted(turn), Matched(turn, names), TurnEnded())
        over = self.after(WINDOW_MS, Elapsed())
        return found + over + [made for each in over if isinstance(each, Inject) for made in self.commit(each)]

    def commit(self, inject: Inject) -> list[RuleEffect]:
        return self.tell(Injected(inject.token))


def inject(token: int, turn: str, *rules: Rule, generation: int = 1, keep: bool = False) -> Inject:
    context = ContextMode.KEEP if keep else ContextMode.DISCARD
    return Inject(token, generation, turn, context, rules, reminder(rules))


def test_a_match_aborts_at_once_and_its_reminder_goes_in_after_the_window() -> None:
    story = Story().turn()
    assert story.tell(Matched("t1", ("a",))) == [Interrupt(1), Triggered((A,))]
    assert story.state.pending
    assert next_due(story.state) == ZERO.plus(WINDOW_MS)
    assert story.after(20, TurnEnded(), Elapsed()) == []
    assert story.after(30, Elapsed()) == [inject(1, "t1", A)]
    assert story.state.awaits(1)
    assert next_due(story.state) is None
    assert story.state.pending  # until the reminder is in
    assert story.tell(Injected(1)) == [Record(("a",), ("a",))]
    assert not story.state.pending
    assert story.state.injected == {"a": 0}


def test_every_rule_of_a_window_goes_into_one_message() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("b",)))
    assert story.after(20, Matched("t1", ("a", "b"))) == [Triggered((A,))]
    (effect,) = story.after(30, Elapsed())
    assert effect == inject(1, "t1", A, B)
    assert story.tell(Injected(1)) == [Record(("b", "a"), ("a", "b"))]


def test_what_goes_on_matching_before_the_abort_lands_counts_once() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)))
    assert story.tell(Matched("t1", ("a",)), Matched("t1", ("a",))) == []
    assert story.after(WINDOW_MS, Elapsed()) == [inject(1, "t1", A)]
    assert story.tell(Matched("t1", ("a", "b")), Elapsed()) == []


@pytest.mark.parametrize("turn", ["t0", "t2", ""])
def test_a_match_of_another_turn_is_nothing(turn: str) -> None:
    story = Story().turn()
    assert story.tell(Matched(turn, ("a",))) == []
    story.tell(TurnEnded())
    assert story.tell(Matched("t1", ("a",))) == []


def test_the_context_mode_is_read_when_the_window_closes() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)))
    story.after(20, Configured(RuleSettings(context=ContextMode.KEEP)))
    assert story.after(30, Elapsed()) == [inject(1, "t1", A, keep=True)]


@pytest.mark.parametrize(
    ("own", "configured", "keep"),
    [
        ((None, None), ContextMode.KEEP, True),
        ((ContextMode.KEEP, None), ContextMode.DISCARD, False),
        ((ContextMode.KEEP, ContextMode.KEEP), ContextMode.DISCARD, True),
        ((ContextMode.DISCARD, None), ContextMode.KEEP, False),
    ],
)
def test_of_a_mixed_batch_discard_has_its_way(
    own: tuple[ContextMode | None, ContextMode | None], configured: ContextMode, keep: bool
) -> None:
    first, second = (Rule(name, name, name, (name,), context=mode) for name, mode in zip("ab", own, strict=True))
    story = Story(first, second, settings=RuleSettings(context=configured)).turn()
    story.tell(Matched("t1", ("a", "b")))
    assert story.after(WINDOW_MS, Elapsed()) == [inject(1, "t1", first, second, keep=keep)]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Cancelled("it was aborted by a person"), "it was aborted by a person"),
        (Prompted(fresh=True), "another prompt was sent"),
        (Prompted(fresh=False), "another prompt was sent"),
        (Restored(()), "the conversation stands elsewhere now"),
        (DecisionAccepted(), "the iteration's decision was accepted"),
    ],
)
@pytest.mark.parametrize("elapsed", [False, True])
def test_a_retry_that_is_no_longer_ours_is_void_and_its_rules_may_act_again(
    event: RuleEvent, why: str, elapsed: bool
) -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)))
    if elapsed:
        story.after(WINDOW_MS, Elapsed())
    assert story.after(20, event) == [Released(("a",), why)]
    assert not story.state.awaits(1)
    assert story.after(WINDOW_MS, Elapsed(), Injected(1), NotInjected(1, "late")) == []
    assert story.state.injected == {}
    assert story.turn("t2").tell(Matched("t2", ("a",))) == [Interrupt(2), Triggered((A,))]


def test_an_injection_that_failed_releases_its_rules() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)))
    story.after(WINDOW_MS, Elapsed())
    assert story.tell(NotInjected(7, "not this one")) == []
    assert story.tell(NotInjected(1, "the agent does not answer")) == [Released(("a",), "the agent does not answer")]
    assert story.state.injected == {}


def test_once_means_once_also_after_a_restart() -> None:
    story = Story().turn()
    assert story.violate("t2", "a")
    assert story.violate("t3", "a") == []
    again = Story(injected=("a",)).turn()
    assert again.tell(Matched("t1", ("a", "b"))) == [Interrupt(1), Triggered((B,))]


def test_after_gap_counts_ended_turns_and_the_aborted_one_is_the_first() -> None:
    story = Story(settings=GAP).turn()
    story.tell(TurnEnded())
    assert story.violate("t2", "a")[-1] == Record(("a",), ("a",))
    assert story.state.injected == {"a": 1}
    assert story.violate("t3", "a") == []  # 2 - 1: one turn has ended since
    assert story.violate("t4", "a")[0] == Interrupt(2)


@pytest.mark.parametrize(("own", "acts"), [(RepeatMode.ONCE, False), (RepeatMode.AFTER_GAP, True)])
def test_a_rule_has_its_own_repetition(own: RepeatMode, acts: bool) -> None:
    rule = Rule("a", "a", "a", ("a",), repeat=own, gap=1)
    story = Story(rule, settings=RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=0)).turn()
    story.violate("t2", "a")
    assert bool(story.violate("t3", "a")) is acts


def test_restored_after_a_restart_the_age_of_a_rule_starts_again() -> None:
    story = Story(settings=GAP, injected=("a",)).turn()
    assert story.violate("t2", "a") == []
    assert story.violate("t3", "a") == []
    assert story.violate("t4", "a")[0] == Interrupt(1)


def test_a_model_that_always_violates_is_stopped_after_six_and_shown() -> None:
    story = Story(settings=RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=0)).turn("t")
    for number in range(MAX_INTERRUPTIONS):
        assert story.violate(f"t{number}", "a")[0] == Interrupt(number + 1)
    assert story.violate("t7", "a") == [Silenced(("a",), request=True)]
    assert story.violate("t8", "a") == []
    assert story.violate("t9", "b") == [Silenced(("b",), request=True)]
    story.tell(Prompted(fresh=False))  # a reminder is no new request
    assert story.violate("t10", "a") == []
    story.tell(Prompted(fresh=True))
    assert story.violate("t11", "a")[0] == Interrupt(MAX_INTERRUPTIONS + 1)


def test_after_an_accepted_decision_nothing_matches_and_nothing_is_marked() -> None:
    story = Story().turn()
    story.tell(DecisionAccepted())
    assert not story.state.watching
    assert story.tell(Matched("t1", ("a",))) == []
    assert story.state.injected == {}
    assert story.turn("t2").tell(Matched("t2", ("a",)))[0] == Interrupt(1)


def test_switched_off_nothing_matches() -> None:
    story = Story(settings=RuleSettings(enabled=False)).turn()
    assert not story.state.watching
    assert story.tell(Matched("t1", ("a",))) == []
    story.tell(Configured(RuleSettings()))
    assert story.tell(Matched("t1", ("a",)))[0] == Interrupt(1)


def test_a_slow_rule_is_named_once_and_acts_no_more() -> None:
    story = Story().turn()
    assert story.tell(TooSlow(("a", "nobody"))) == [Silenced(("a",), request=False)]
    assert story.tell(TooSlow(("a",))) == []
    assert story.tell(Matched("t1", ("a", "b"))) == [Interrupt(1), Triggered((B,))]
    assert story.turn("t2").tell(Matched("t2", ("a",))) == []


def test_a_branch_without_the_injection_does_not_know_it() -> None:
    story = Story(settings=GAP).turn()
    story.tell(TurnEnded(), TurnEnded())
    story.violate("t3", "a")
    assert story.tell(Restored(("b",))) == []
    assert story.state.injected == {"b": 0}
    story.tell(Restored(("a", "b")))
    assert story.state.injected == {"a": 0, "b": 0}


def test_rules_that_are_kept_keep_their_age() -> None:
    story = Story(settings=GAP).turn()
    story.tell(TurnEnded(), TurnEnded())
    story.violate("t3", "a")
    story.tell(Restored(("a", "b")))
    assert story.state.injected == {"a": 2, "b": 0}


def test_rules_taken_away_in_the_window_are_not_injected() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)), Configured(RuleSettings(), rules=(B,)))
    assert story.after(WINDOW_MS, Elapsed()) == [Released(("a",), "the rules were removed")]


def test_of_one_name_the_first_is_registered_and_without_a_trigger_none() -> None:
    second = Rule("a", "elsewhere", "Other.", ("x",))
    silent = Rule("c", "c", "Never.", ())
    assert opened((A, second, silent, B), RuleSettings()).rules == (A, B)
    assert not opened((silent,), RuleSettings()).watching


def test_either_clock_ends_the_window() -> None:
    story = Story().turn()
    story.tell(Matched("t1", ("a",)))
    story.now = Moment(story.now.wall - 3_600_000, story.now.mono + WINDOW_MS)
    assert story.tell(Elapsed()) == [inject(1, "t1", A)]


def test_an_unknown_name_is_nothing() -> None:
    story = Story().turn()
    assert story.tell(Matched("t1", ("nobody",))) == []
    assert RuleState().watching is False
