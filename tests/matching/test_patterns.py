"""Triggers as patterns: what they mean, and that none can hold anybody up."""

from __future__ import annotations

import pytest

import loopsup.matching.patterns as module
from loopsup.matching.patterns import (
    LIMITED,
    MAX_TRIGGER,
    MOST_BEYOND_S,
    SHARE_S,
    TIME_LIMIT_S,
    BadTriggerError,
    Pattern,
    PatternSet,
    SlowTriggerError,
)


@pytest.mark.parametrize(
    ("trigger", "text", "found"),
    [
        (r"foo\.bar", "a foo.bar b", True),
        (r"foo\.bar", "a fooxbar b", False),
        (r"(?i)todo", "ToDo", True),
        (r"(?m)^rm ", "ls\nrm x", True),
        (r"^rm ", "ls\nrm x", False),
        (r"(?s)a.b", "a\nb", True),
        (r"a.b", "a\nb", False),
        (r"x$", "x\n", False),
        (r"(?m)x$", "x\n", True),
        (r"\d", "\u0661", False),  # as in JavaScript: ASCII
        (r"(?<name>a)b", "ab", True),
        (r"[[:space:]]x", " x", True),
        (r"a\/b", "a/b", True),
        # RE2 does not know these; the other engine does
        (r"foo(?!bar)", "foobaz", True),
        (r"foo(?!bar)", "foobar", False),
        (r"(?<!un)safe", "unsafe", False),
        (r"(a)\1", "xaa", True),
        (r"(?<q>['\"])x\k<q>", "'x'", True),
        (r"(?<q>['\"])x\k<q>", "'x\"", False),
        (r"(?=x)x$", "x\n", False),
        (r"(?m)(?=x)x$", "x\n", True),
        (r"(?=[$])[$]", "a$b", True),
        (r"(?=\d)\d", "\u0661", False),
        ("\\u0041", "A", True),
        (r"a{1001}", "a" * 1001, True),
    ],
)
def test_what_a_trigger_means(trigger: str, text: str, found: bool) -> None:
    assert (Pattern(trigger).search(text) is not None) is found


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ("(", "missing"),
        ("[a", "missing"),
        ("*a", "no argument for repetition operator"),
        ("(?=a", "missing"),
        ("a" * (MAX_TRIGGER + 1), "longer than"),
    ],
)
def test_what_is_no_pattern_is_said_in_a_clause(trigger: str, said: str) -> None:
    with pytest.raises(BadTriggerError, match=said):
        Pattern(trigger)


@pytest.mark.parametrize("trigger", [r"(a+)+$", r"(a|aa)+$", r"(a|a?)+$", r"(.*a){20}"])
def test_a_pattern_that_explodes_elsewhere_is_linear_here(trigger: str) -> None:
    pattern = Pattern(trigger)
    assert pattern.linear
    pattern.search("a" * 10_000 + "b")  # returns at all


def test_a_pattern_that_cannot_be_linear_is_given_up_after_its_time() -> None:
    pattern = Pattern(r"(?=a)(a|a?|aa)+$\1")
    assert not pattern.linear
    with pytest.raises(SlowTriggerError):
        pattern.search("a" * 10_000 + "b")


class Costs:
    """A processor clock on which each look takes as long."""

    def __init__(self, look_s: float) -> None:
        self.look_s = look_s
        self.now = 0.0
        self.read = 0

    def __call__(self) -> float:
        self.read += 1
        if self.read % 2 == 0:  # the end of a look
            self.now += self.look_s
        return self.now


def test_a_pattern_below_its_limit_is_given_up_after_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_s", costs := Costs(0.8 * TIME_LIMIT_S))
    with pytest.raises(SlowTriggerError):
        Pattern(r"foo(?!bar)").search("x" * 4_000_000)
    assert costs.now < MOST_BEYOND_S + 2 * TIME_LIMIT_S


def test_many_short_looks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_s", costs := Costs(0.01))
    pattern = Pattern(r"foo(?!bar)")
    with pytest.raises(SlowTriggerError):
        all(pattern.search("x" * 4096) is None for _ in range(1000))
    assert costs.now < 2 * MOST_BEYOND_S


def test_a_pattern_that_keeps_to_its_share_is_never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_s", costs := Costs(0))
    pattern = Pattern(r"foo(?!bar)")
    for turn in range(3000):
        costs.look_s = 0.02 if turn % 100 == 0 else 0.5 * SHARE_S * 4096  # now and then one that is slow
        assert pattern.search("x" * 4096) is None
    assert costs.now > MOST_BEYOND_S


@pytest.mark.parametrize("place", [0, LIMITED - 2, LIMITED, LIMITED + 5000, 60_000])
def test_a_time_limited_pattern_sees_a_long_text_whole(place: int) -> None:
    text = "x" * place + "foo" + "x" * 60_000
    assert Pattern(r"foo(?!bar)").search(text) == (place, place + 3)
    assert Pattern(r"foo(?!bar)$").search(text) is None
    assert Pattern(r"x(?!bar)$").search(text) == (len(text) - 1, len(text))


def test_what_stands_before_the_start_is_context() -> None:
    assert Pattern(r"\bfoo").search("xfoo", 1) is None
    assert Pattern(r"(?m)^foo").search("\nfoo", 1) == (1, 4)
    assert Pattern(r"^foo").search("xfoo", 1) is None
    assert Pattern(r"(?<=x)foo").search("xfoo", 1) == (1, 4)


@pytest.mark.parametrize(("trigger", "all_of_it"), [(".*", True), ("a*", True), ("a?(?!b)", True), ("a", False)])
def test_a_pattern_that_is_in_every_text_is_known(trigger: str, all_of_it: bool) -> None:
    assert Pattern(trigger).matches_empty is all_of_it


def test_a_set_finds_many_in_one_pass() -> None:
    patterns = [Pattern(trigger) for trigger in (r"foo\d", r"bar", r"(?i)BAZ", r"^never")]
    assert PatternSet(patterns).found("a baz and foo1") == [0, 2]
    assert PatternSet(patterns).found("nothing") == []
    assert PatternSet([]).found("foo1") == []


def test_a_set_too_large_for_its_memory_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopsup.matching.patterns.MEMORY", 256 * 1024)
    module._options.cache_clear()
    try:
        many = [Pattern(rf"\bw{number}[a-z]{{16,400}}x") for number in range(12)]
        assert PatternSet(many).found("w7" + "b" * 20 + "x") == [7]
    finally:
        module._options.cache_clear()
