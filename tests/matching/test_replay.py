"""What a rule would have done in a conversation that is over."""

from __future__ import annotations

from loopsup.core.rules import TEXT, RepeatMode, Rule, RuleSettings, Scope, Source, Stream, ToolScope
from loopsup.matching.replay import Finding, Said, Turn, replay

RULE = Rule("a", "a.md", "Text.", ("foo+", "bar"))
BASH = Stream(Source.TOOL, "bash", "c1")
GAP = RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=2)


def found(*transcript: Turn | Said, rule: Rule = RULE, settings: RuleSettings | None = None) -> list[Finding]:
    return list(replay(rule, settings or RuleSettings(), transcript))


def test_a_rule_acts_once_and_what_comes_after_is_shown() -> None:
    assert found(
        Turn(1, "t1", fresh=True),
        Said(2, TEXT, "nothing"),
        Turn(3, "t2"),
        Said(4, TEXT, "one\nand fooo there\n"),
        Turn(5, "t3"),
        Said(6, BASH, arguments={"command": "ls\nbar"}),
    ) == [
        Finding(4, "t2", "text", "foo+", "and fooo there", True),
        Finding(6, "t3", "bash", "bar", "bar", False),
    ]


def test_a_gap_counts_turns() -> None:
    turns = [part for n in range(5) for part in (Turn(n, f"t{n}"), Said(n, TEXT, "foo"))]
    assert [each.acts for each in found(*turns, settings=GAP)] == [True, False, True, False, True]


def test_six_interruptions_are_enough_for_one_request() -> None:
    always = RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=0)
    turns = [part for n in range(8) for part in (Turn(n, f"t{n}"), Said(n, TEXT, "foo"))]
    again = [Turn(9, "", fresh=True), *turns[:2]]
    assert [each.acts for each in found(*turns, *again, settings=always)] == [True] * 6 + [False, False, True]


def test_the_scope_counts() -> None:
    rule = Rule("a", "a.md", "Text.", ("foo",), scope=Scope(tools=(ToolScope("edit"),)))
    assert found(Turn(1, "t1"), Said(2, TEXT, "foo"), Said(2, BASH, arguments={"x": "foo"}), rule=rule) == []


def test_lines_of_a_plain_text_are_its_own() -> None:
    (finding,) = found(Turn(1, "1"), Said(1, TEXT, "a\nb\nfoo" + "x" * 200, lines=True))
    assert (finding.line, finding.excerpt) == (3, "foo" + "x" * 77)


def test_a_long_line_is_shown_around_what_was_found() -> None:
    (finding,) = found(Turn(1, "1"), Said(1, TEXT, "x" * 200 + "foo"))
    assert finding.excerpt == "x" * 40 + "foo"
