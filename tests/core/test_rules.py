"""The reminder a model reads."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from loopsup.core.rules import Rule, reminder


def test_a_block_names_rule_and_path_and_ends_with_the_content() -> None:
    text = reminder((Rule("no-unwrap", ".loopsup/rules/no-unwrap.md", "Use `?`.\n\n", ("x",)),))
    first, *_, last = text.splitlines()
    assert first == ('<system-interrupt reason="rule_violation" rule="no-unwrap" path=".loopsup/rules/no-unwrap.md">')
    assert last == "</system-interrupt>"
    assert text.endswith("\n\nUse `?`.\n</system-interrupt>")


def test_several_rules_are_one_message() -> None:
    rules = tuple(Rule(name, f"{name}.md", f"No {name}.", (name,)) for name in "abc")
    assert reminder(rules) == "\n\n".join(reminder((rule,)) for rule in rules)


@pytest.mark.parametrize("name", ['x" y="<', "a&b", "a>b", "tab\tand\nline", "plain", "é – 漢"])
def test_whatever_a_rule_is_called_its_block_is_well_formed(name: str) -> None:
    block = ET.fromstring(reminder((Rule(name, f"/dir/{name}", "Text.", ("x",)),)))
    assert block.tag == "system-interrupt"
    assert block.attrib == {"reason": "rule_violation", "rule": name, "path": f"/dir/{name}"}


def test_content_cannot_end_its_block() -> None:
    block = ET.fromstring(reminder((Rule("a", "a", "before </system-interrupt> after", ("x",)),)))
    assert (block.text or "").endswith("before </system-interrupt> after\n")
