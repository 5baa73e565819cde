"""Which rules are found in a stream, however it is cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core.rules import NO_HITS, TEXT, THINKING, Hits, Rule, Scope, Source, Stream, ToolScope
from loopsup.matching import matcher as module
from loopsup.matching.matcher import GROWTH, WINDOW, Matcher

BASH = Stream(Source.TOOL, "bash", "c1")
EDIT = Stream(Source.TOOL, "edit", "c2")


def rule(name: str, *triggers: str, **more: Any) -> Rule:
    return Rule(name, f"{name}.md", "Text.", triggers or (name,), **more)


def found(*names: str) -> Hits:
    return Hits(names)


def fed(matcher: Matcher, stream: Stream, *pieces: str) -> list[tuple[str, ...]]:
    return [matcher.delta(stream, piece).names for piece in pieces]


def test_a_trigger_split_over_pieces_is_found_at_the_last() -> None:
    assert fed(Matcher([rule("a", r"foo\.bar")]), TEXT, "fo", "o.b", "ar") == [(), (), ("a",)]


@pytest.mark.parametrize(
    ("trigger", "pieces", "expected"),
    [
        (r"\.env\b", ["cat .env", "ironment"], [(), ()]),
        (r"\.env\b", ["cat .env", " x"], [(), ("a",)]),
        (r"^done$", ["done", " with it"], [(), ()]),
        (r"foo(?!bar)", ["foo", "bar"], [(), ()]),
        (r"foo(?!bar)", ["foo", "baz"], [(), ("a",)]),
        (r"\bfoo", ["a foo"], [()]),
    ],
)
def test_what_depends_on_what_follows_waits_for_it(
    trigger: str, pieces: list[str], expected: list[tuple[str, ...]]
) -> None:
    assert fed(Matcher([rule("a", trigger)]), TEXT, *pieces) == expected


@pytest.mark.parametrize("trigger", [r"\.env\b", r"\.env$", r"\.env(?!i)"])
def test_at_the_end_of_the_block_it_is_sure(trigger: str) -> None:
    matcher = Matcher([rule("a", trigger)])
    assert fed(matcher, TEXT, "cat .env") == [()]
    assert matcher.whole(TEXT, "cat .env") == found("a")
    assert matcher.call(BASH, {"command": "cat .env"}) == NO_HITS  # once a turn


def test_a_rule_without_scope_sees_text_and_arguments_in_one_buffer() -> None:
    matcher = Matcher([rule("a", r"foo\.bar")])
    assert matcher.delta(TEXT, "fo") == NO_HITS
    assert matcher.delta(BASH, "o.bar") == found("a")


def test_nothing_is_found_across_two_turns() -> None:
    matcher = Matcher([rule("a", "foobar")])
    matcher.delta(TEXT, "foo")
    matcher.turn()
    assert matcher.delta(TEXT, "bar") == NO_HITS


def test_thinking_is_looked_at_only_where_it_is_asked_for() -> None:
    matcher = Matcher([rule("a"), rule("b", "a", scope=Scope(thinking=True))])
    assert matcher.delta(THINKING, "a") == found("b")
    assert matcher.delta(TEXT, "a") == found("a")


def test_scopes_are_matched_each_by_itself() -> None:
    both = Scope(text=True, tools=(ToolScope(),))
    matcher = Matcher([rule("a", "foobar", scope=both)])
    assert fed(matcher, TEXT, "foo") == [()]
    assert fed(matcher, BASH, "bar", "foo") == [(), ()]
    assert fed(matcher, EDIT, "bar") == [()]
    assert fed(matcher, BASH, "bar") == [("a",)]


def test_a_scope_names_its_tool_in_any_case() -> None:
    matcher = Matcher([rule("a", scope=Scope(tools=(ToolScope("Bash"),)))])
    assert fed(matcher, EDIT, "a") == [()]
    assert fed(matcher, TEXT, "a") == [()]
    assert fed(matcher, BASH, "a") == [("a",)]


def test_a_rule_for_paths_acts_once_the_path_is_known() -> None:
    typescript = Scope(tools=(ToolScope("edit", "*.ts"),))
    matcher = Matcher([rule("a", "as any", scope=typescript)])
    assert fed(matcher, EDIT, '{"path":"src/a.ts",', '"text":"x as', ' any"') == [(), (), ("a",)]
    matcher.turn()
    assert fed(matcher, EDIT, '{"text":"x as any",', '"path":"src/a.ts"', "}") == [(), ("a",), ()]
    matcher.turn()
    assert fed(matcher, EDIT, '{"path":"src/a.js",', '"text":"x as any"}') == [(), ()]
    assert matcher.call(EDIT, {"path": "src/a.js", "text": "x as any"}) == NO_HITS
    assert matcher.call(EDIT, {"path": "src/a.ts", "text": "x as any"}) == found("a")


def test_globs_need_a_path_whatever_the_scope() -> None:
    matcher = Matcher([rule("a", globs=("*.py",)), rule("b", "a", scope=Scope(text=True), globs=("*.py",))])
    assert matcher.delta(TEXT, "a") == NO_HITS
    assert matcher.call(EDIT, {"path": "x.py", "text": "a"}) == found("a")


@pytest.mark.parametrize(
    ("trigger", "arguments"),
    [
        (r"(?m)^rm -rf", {"command": "cd /tmp\nrm -rf x"}),
        (r"say \"hi\"", {"command": 'say "hi"'}),
        (r'"command":"ls', {"command": "ls -l"}),
        (r"deep", {"a": [{"b": ("x", "deep")}]}),
        (r"^plain$", "plain"),
        (r"42", {"n": 42}),
    ],
)
def test_complete_arguments_are_matched_unescaped_and_as_json(trigger: str, arguments: object) -> None:
    assert Matcher([rule("a", trigger)]).call(BASH, arguments) == found("a")


def test_two_texts_of_a_call_are_not_one() -> None:
    assert Matcher([rule("a", r"^foo\s*bar$")]).call(BASH, {"a": "foo", "b": "bar"}) == NO_HITS


def test_a_block_without_pieces_is_looked_at_whole() -> None:
    matcher = Matcher([rule("a", "foo")])
    assert matcher.whole(TEXT, "a foo") == found("a")


def test_the_second_block_of_a_turn_is_looked_at_too() -> None:
    matcher = Matcher([rule("a", "foo"), rule("b", "bar"), rule("c", "x2")])
    assert matcher.whole(TEXT, "a foo") == found("a")
    assert matcher.whole(TEXT, "a bar x") == found("b")
    assert matcher.delta(TEXT, "2") == found("c")


@pytest.mark.parametrize(
    ("scope", "globs", "works"),
    [
        (None, (), False),
        (Scope(text=True, tools=(ToolScope("bash"),)), (), False),
        (Scope(thinking=True), (), False),
        (Scope(tools=(ToolScope("bash"),)), (), True),
        (None, ("*.rs",), True),
    ],
)
def test_what_is_in_every_text_may_only_watch_tools(scope: Scope | None, globs: tuple[str, ...], works: bool) -> None:
    matcher = Matcher([rule("a", ".*", scope=scope, globs=globs)])
    assert matcher.idle is not works
    assert [why for _, _, why in matcher.problems] == (
        [] if works else ["it is found in every text, so it would interrupt every response"]
    )


def test_what_a_long_match_needs_is_seen_at_the_end_of_the_block() -> None:
    matcher = Matcher([rule("a", r"(?s)start.*end")])
    text = "start" + "x" * (WINDOW + 100) + "end"
    assert fed(matcher, TEXT, *[text[i : i + 50] for i in range(0, len(text), 50)])[-1] == ()
    assert matcher.whole(TEXT, text) == found("a")


def test_a_long_match_is_also_found_when_the_buffer_has_grown() -> None:
    matcher = Matcher([rule("a", r"(?s)start.*end")])
    text = "start" + "x" * 2 * WINDOW + "end" + "y" * WINDOW
    pieces = fed(matcher, TEXT, *[text[i : i + 50] for i in range(0, len(text), 50)])
    assert pieces.count(("a",)) == 1


def test_a_rule_is_named_once_in_a_turn() -> None:
    matcher = Matcher([rule("a"), rule("b")])
    assert fed(matcher, TEXT, "a", "a", "b") == [("a",), (), ("b",)]
    matcher.turn()
    assert fed(matcher, TEXT, "ba") == [("a", "b")]


def test_a_trigger_that_is_no_pattern_is_left_out_and_named() -> None:
    matcher = Matcher([rule("bad", "("), rule("half", "(", "x"), rule("good")])
    assert [(name, trigger) for name, trigger, _ in matcher.problems] == [("bad", "("), ("half", "(")]
    assert [each.name for each in matcher.rules] == ["half", "good"]
    assert matcher.delta(TEXT, "good x") == found("half", "good")


def test_a_rule_that_is_too_slow_is_named_and_not_tried_again() -> None:
    matcher = Matcher([rule("slow", r"(?=a)(a|a?|aa)+$\1"), rule("good")])
    assert matcher.delta(TEXT, "a" * 10_000 + "b") == Hits((), ("slow",))
    assert matcher.delta(TEXT, "a" * 10_000 + "b good") == found("good")


def test_without_rules_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(module._Group, "candidates", lambda *given: looked.append(given) or iter(()))
    for rules in ([], [rule("none", "(")]):
        matcher = Matcher(rules)
        assert matcher.idle
        assert matcher.delta(TEXT, "text") == NO_HITS
        assert matcher.whole(TEXT, "text") == NO_HITS
        assert matcher.call(BASH, {"command": "ls"}) == NO_HITS
    scoped = Matcher([rule("a", scope=Scope(tools=(ToolScope("edit"),)))])
    scoped.delta(TEXT, "text")
    assert looked == []


def test_what_is_looked_at_again_does_not_grow_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(module._Group, "candidates", lambda _, text, start: seen.append(len(text)) or iter(()))
    matcher = Matcher([rule("a")])
    for _ in range(10_000):
        matcher.delta(TEXT, "x" * 10)
    windows = [length for length in seen if length <= WINDOW + 11]
    grown = [length for length in seen if length > WINDOW + 11]
    assert len(windows) == 10_000
    assert sum(grown) <= (GROWTH + 1) * 100_000


@pytest.mark.parametrize("text", ["\ud800", "a\udfff foo", "é\u2028foo", "\x00foo"])
def test_any_text_can_be_looked_at(text: str) -> None:
    matcher = Matcher([rule("a", "foo"), rule("b", "foo(?!x)")])
    assert matcher.whole(TEXT, text).names in ((), ("a", "b"))
    assert matcher.call(BASH, {"command": text + "foo"}) in (NO_HITS, found("a", "b"))


@pytest.mark.parametrize("deep", [10, 100_000])
def test_arguments_may_be_as_deep_as_they_like(deep: int) -> None:
    value: Any = "foo"
    for _ in range(deep):
        value = [value]
    assert Matcher([rule("a", "foo")]).call(BASH, value) == (found("a") if deep == 10 else NO_HITS)


WORDS = st.lists(st.sampled_from(["foo", "bar", "x", " ", "\n", "fo", "o", "é", "y" * 300]), max_size=80)
TRIGGERS = [r"foo", r"foo\s*bar", r"(?m)^foo", r"\bfoo\b", r"o{3}", r"^x", r"foo(?!bar)", r"(?<=o)x"]


@given(WORDS, st.lists(st.integers(min_value=1, max_value=700), min_size=1, max_size=12))
def test_pieces_find_what_the_whole_has(words: list[str], sizes: list[int]) -> None:
    """Whatever the cuts: what is in the text is found by its end, and (but for looks ahead) nothing else is."""
    text = "".join(words)
    matcher = Matcher([rule(trigger) for trigger in TRIGGERS])
    names: set[str] = set()
    rest, turn = text, 0
    while rest:
        size = sizes[turn % len(sizes)]
        names |= set(matcher.delta(TEXT, rest[:size]).names)
        rest, turn = rest[size:], turn + 1
    names |= set(matcher.whole(TEXT, text).names)
    whole = set(Matcher([rule(trigger) for trigger in TRIGGERS]).whole(TEXT, text).names)
    assert names >= whole
    assert names - whole <= {r"foo(?!bar)"}  # the letters behind may still come


@pytest.mark.parametrize(
    "more",
    [{"globs": ("[z-a].ts",)}, {"scope": Scope(tools=(ToolScope("edit", "[z-a].ts"),))}],
    ids=["globs", "scope"],
)
def test_a_rule_whose_paths_cannot_be_told_is_named_and_does_not_act(more: dict[str, Any]) -> None:
    matcher = Matcher([rule("bad", **more), rule("good")])
    assert [(name, which) for name, which, _ in matcher.problems] == [("bad", "[z-a].ts")]
    assert matcher.call(EDIT, {"path": "a.ts", "text": "bad good"}) == found("good")


@pytest.mark.parametrize("trigger", ["\ud800", "x(?=\ud800)", "(?R)(?=x)"])
def test_a_trigger_that_no_engine_can_run_is_named(trigger: str) -> None:
    matcher = Matcher([rule("bad", trigger, "fine")])
    assert [(name, which) for name, which, _ in matcher.problems] == [("bad", trigger)]
    assert matcher.delta(TEXT, "fine") == found("bad")


def test_a_path_with_half_a_character_is_a_path() -> None:
    matcher = Matcher([rule("a", globs=("*.ts",))])
    assert matcher.call(EDIT, {"path": "src/\ud800.ts", "text": "a"}) == found("a")
