"""A matching engine for tests that needs no patterns: a trigger is found where it stands, word for word.

One buffer a turn for text and tool arguments. `fed` counts the calls; `slow` names rules that are reported so.
"""

from __future__ import annotations

from typing import Any

from loopsup.core.rules import Hits, Rule, Source, Stream


class Words:
    """`loopsup.core.rules.Matching` for literal triggers."""

    def __init__(self, *rules: Rule, slow: tuple[str, ...] = ()) -> None:
        self.rules = rules
        self.slow = slow
        self.fed = 0
        self._buffer = ""

    @property
    def idle(self) -> bool:
        return not self.rules

    def turn(self) -> None:
        self._buffer = ""

    def delta(self, stream: Stream, text: str) -> Hits:
        self.fed += 1
        if stream.source is Source.THINKING:
            return Hits()
        self._buffer += text
        return self._hits(self._buffer)

    def whole(self, stream: Stream, text: str) -> Hits:
        self.fed += 1
        return self._hits(text)

    def call(self, stream: Stream, arguments: object) -> Hits:
        self.fed += 1
        return self._hits(str(arguments))

    def _hits(self, text: str) -> Hits:
        return Hits(tuple(rule.name for rule in self.rules if any(one in text for one in rule.triggers)), self.slow)


def rule(name: str = "no-foo", trigger: str = "foo.bar", **more: Any) -> Rule:
    """A rule with one trigger."""
    return Rule(name, f".loopsup/rules/{name}.md", f"Never write {trigger}.", (trigger,), **more)
