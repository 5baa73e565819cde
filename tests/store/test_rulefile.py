"""Rule files as people have them."""

from __future__ import annotations

from typing import Any

import pytest

from loopsup.core.rules import ContextMode, RepeatMode, Rule, Scope, ToolScope
from loopsup.store.rulefile import EDITING, Parsed, parse


def read(header: str, body: str = "Text.\n") -> Parsed:
    return parse(f"---\n{header}\n---\n{body}", "stem", "shown.md")


def rule(**values: Any) -> Rule:
    given: dict[str, Any] = {"name": "stem", "path": "shown.md", "content": "Text.", "triggers": ("x",), **values}
    return Rule(**given)


EDITS = tuple(ToolScope(tool, "*.rs") for tool in EDITING)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("ttsr_trigger: x", rule()),
        ("ttsrTrigger: x", rule()),
        ("trigger: x", rule()),
        ("condition: x\nttsr_trigger: y", rule()),
        ("condition: ''\nttsr_trigger: x", rule()),
        ("condition:\n  - x\n  - 'y z'\n  - x", rule(triggers=("x", "y z"))),
        ('condition: ["x", "\\\\.unwrap\\\\("]', rule(triggers=("x", r"\.unwrap\("))),
        ("condition: '\\.unwrap\\('", rule(triggers=(r"\.unwrap\(",))),
        ("condition: |-\n  a b\n\nname: other", rule(name="other", triggers=("a b",))),
        ("condition: no", rule(triggers=("no",))),
        ("condition: 42", rule(triggers=("42",))),
        ("'condition': x", rule()),
        ("trigger: x\nscope: text", rule(scope=Scope(text=True))),
        ("trigger: x\nscope: [thinking, text]", rule(scope=Scope(text=True, thinking=True))),
        ("trigger: x\nscope: tool", rule(scope=Scope(tools=(ToolScope(),)))),
        ("trigger: x\nscope: toolcall", rule(scope=Scope(tools=(ToolScope(),)))),
        ("trigger: x\nscope: tool:bash", rule(scope=Scope(tools=(ToolScope("bash"),)))),
        ("trigger: x\nscope: Bash", rule(scope=Scope(tools=(ToolScope("Bash"),)))),
        (
            "trigger: x\nscope: 'tool:edit(*.{ts,tsx}), write(src/**)'",
            rule(scope=Scope(tools=(ToolScope("edit", "*.{ts,tsx}"), ToolScope("write", "src/**")))),
        ),
        ("trigger: x\nscope: tool(*.c)", rule(scope=Scope(tools=(ToolScope("", "*.c"),)))),
        ("trigger: x\nglobs: ['*.ts', '*.js']", rule(globs=("*.ts", "*.js"))),
        ("trigger: x\nglobs: '*.ts, *.js'", rule(globs=("*.ts", "*.js"))),
        ("condition: '*.rs'", rule(triggers=(".*",), scope=Scope(tools=EDITS))),
        ("condition: ['*.rs', x]", rule(scope=Scope(tools=EDITS))),
        ("condition: '*.rs'\nscope: text", rule(triggers=(".*",), scope=Scope(text=True, tools=EDITS))),
        ("trigger: x\ninterruptMode: prose-only", rule(scope=Scope(text=True))),
        ("trigger: x\ninterruptMode: tool-only", rule(scope=Scope(tools=(ToolScope(),)))),
        ("trigger: x\nscope: text, tool:a\ninterruptMode: tool-only", rule(scope=Scope(tools=(ToolScope("a"),)))),
        ("trigger: x\nrepeat: after-gap\ngap: 3", rule(repeat=RepeatMode.AFTER_GAP, gap=3)),
        ("trigger: x\nrepeatMode: once\nrepeatGap: 0", rule(repeat=RepeatMode.ONCE, gap=0)),
        ("trigger: x\nrepeat_mode: after_gap", rule(repeat=RepeatMode.AFTER_GAP)),
        ("trigger: x\nrepeat_policy: always", rule(repeat=RepeatMode.AFTER_GAP, gap=0)),
        ("trigger: x\ncontextMode: keep", rule(context=ContextMode.KEEP)),
        ("trigger: x\ncontext: discard", rule(context=ContextMode.DISCARD)),
        ("trigger: x\nreminder: Short.", rule(content="Short.")),
        (f"trigger: x\nreminder: {'y' * 1025}", rule()),
        ("trigger: x\nagents: [main, other]", rule()),
        ("trigger: x\nid: other\nseverity: error\ntags: [a]", rule()),
    ],
)
def test_a_header_is_understood(header: str, expected: Rule) -> None:
    assert read(header) == Parsed(expected)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('trigger: x\nscope: "text","thinking"', rule(scope=Scope(text=True, thinking=True))),
        ("condition: *.rs", rule(triggers=(".*",), scope=Scope(tools=EDITS))),
        ("condition: [abc", rule(triggers=("[abc",))),
        ("condition: git (commit|push): x", rule(triggers=("git (commit|push): x",))),
        ('condition: "x"\nbroken: [', rule()),
        ("condition: x\n" + "y: " + "[" * 5000, rule()),
    ],
)
def test_what_is_no_yaml_is_read_line_by_line_and_told(header: str, expected: Rule) -> None:
    assert read(header) == Parsed(expected, problems=("its header is not valid YAML and was read line by line",))


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("trigger: x\nscope: 'text, a b c'", "its scope 'a b c' is not understood"),
        ("trigger: x\ngap: ten", "its gap 'ten' is no whole number"),
        ("trigger: x\nrepeat: sometimes", "its repeat 'sometimes' is none of once, after-gap"),
        ("trigger: x\ncontext: drop", "its context 'drop' is none of discard, keep"),
    ],
)
def test_what_is_not_understood_is_told_and_the_rest_counts(header: str, problem: str) -> None:
    parsed = read(header)
    assert parsed.problems == (problem,)
    assert parsed.rule.triggers == ("x",)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("trigger: x\ninterruptMode: never", "interruptMode: never, it does not want to interrupt"),
        ("trigger: x\nscope: text\ninterruptMode: tool-only", "its scope leaves no stream to watch"),
        ("trigger: x\nscope: 'a b'", "its scope leaves no stream to watch"),
        ("trigger: x\nagents: reviewer", "it is for the agents reviewer"),
        ("astCondition: foo($A)", "it is triggered by a syntax tree (astCondition), which loopsup does not have"),
        (
            "question: Is it?",
            "it is triggered by a question to another model (question), which loopsup does not have",
        ),
    ],
)
def test_what_does_not_act_here_says_why(header: str, why: str) -> None:
    assert read(header).why == why


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("no header\n", "no header\n"),
        ("---\ndescription: just a page\n---\nBody", "Body"),
        ("---\n\n---\nBody", "Body"),
        ("---\nunfinished: header\nBody", "---\nunfinished: header\nBody"),
        ("", ""),
    ],
)
def test_a_file_without_a_trigger_is_no_stream_rule(text: str, content: str) -> None:
    assert parse(text, "stem", "shown.md") == Parsed(Rule("stem", "shown.md", content.strip("\r\n"), ()))


def test_line_ends_and_a_byte_order_mark_are_no_matter() -> None:
    assert parse("\ufeff---\r\ntrigger: x\r\n---\r\nText.\r\n", "stem", "shown.md") == Parsed(rule())


@pytest.mark.parametrize(("said", "enabled"), [("false", False), ("true", True), ("no", True)])
def test_a_rule_can_be_switched_off_in_its_file(said: str, enabled: bool) -> None:
    assert read(f"trigger: x\nenabled: {said}").enabled is enabled


def test_text_that_refers_to_itself_a_million_times_is_harmless() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefghij", "bcdefghijk", strict=True)
    )
    assert read(f"trigger: x\n{bomb}").rule == rule()
