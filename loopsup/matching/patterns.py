"""Triggers as patterns that cannot hold anybody up.

RE2 runs them: no backtracking, so time grows with the text and not with the pattern. What RE2 does not know (look
around, back references, `\\uXXXX`, repetitions over 1000) goes to `regex` with a time limit on a bounded stretch of
text; one that runs into the limit is not tried again and its rule is named. So is one that stays below it and is slow
again and again: what it takes beyond its share adds up. `re` is never used on a stream.

Meaning: a search anywhere, in ASCII classes, as in JavaScript, where these rules come from. Flags stand in front, as
`(?i)`, `(?m)`, `(?s)`. `$` without `(?m)` is the very end of what has been streamed so far, `^` its beginning.

Both engines are imported when there is a rule to compile, and only then (extra `rules`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from loopsup.clock import processor_s
from loopsup.errors import AgentUnableError

MAX_TRIGGER = 10_000  # characters; beyond, it is no pattern a person wrote
MEMORY = 64 * 1024 * 1024  # bytes RE2 may use for the states of one set: hundreds of rules fit in a tenth of it
TIME_LIMIT_S = 0.05  # processor time of one look at one pattern; usual ones take a thousandth of it
SHARE_S = 0.2e-6  # processor time for a character; usual patterns take a fiftieth of it
MOST_BEYOND_S = 0.25  # what a pattern may take beyond its share in all; as long nobody misses the supervisor
LIMITED = 16 * 1024  # characters a time-limited pattern is given at a time
OVERLAP = 4096  # of two such stretches: what is longer and crosses their border is not seen
END = r"\Z"

AHEAD = ("\\b", "\\B", "$", "(?!", "(?=", "\\z", "\\Z")  # what depends on the text behind it
_LEADING_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")


class BadTriggerError(ValueError):
    """A trigger that is no pattern; one clause for people."""


class SlowTriggerError(Exception):
    """A look at this pattern took too long."""


class Pattern:
    """One trigger. `linear`: RE2 runs it, and it can be part of a `PatternSet`.

    `tentative`: found at the end of a text that goes on, it may yet turn out not to be there: `\\benv\\b` in what
    becomes "environment".
    """

    def __init__(self, trigger: str) -> None:
        if len(trigger) > MAX_TRIGGER:
            raise BadTriggerError(f"it is longer than {MAX_TRIGGER} characters")
        if encodable(trigger) != trigger:
            raise BadTriggerError("it has half a character in it (a surrogate without the other)")
        re2, limited = _engines()
        self.trigger = trigger
        self.linear = True
        self.tentative = any(sign in trigger for sign in AHEAD)
        self._beyond_s = 0.0
        try:
            self._compiled: Any = re2.compile(trigger, _options())
        except re2.error as refused:
            self.linear = False
            try:
                translated = _translated(trigger)
                self._ends = END in translated  # found at the end of a stretch, it may not be at the text's end
                self._compiled = limited.compile(translated, limited.ASCII | limited.VERSION0)
            except (limited.error, ValueError, OverflowError, RecursionError) as error:
                raise BadTriggerError(_clause(error) if _beyond(refused) else _clause(refused)) from error

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where it is found first from `start` on; what stands before `start` is context. SlowTriggerError."""
        found = self._compiled.search(text, start) if self.linear else self._search_limited(text, start)
        return None if found is None else (found.start(), found.end())

    def _search_limited(self, text: str, start: int) -> Any:
        """Stretch by stretch, each overlapping the next."""
        for begin in range(start, max(start, len(text) - OVERLAP) + 1, LIMITED - OVERLAP):
            end = min(len(text), begin + LIMITED)
            began = processor_s()
            try:
                found = self._compiled.search(text, begin, end, timeout=TIME_LIMIT_S)
            except TimeoutError:
                raise SlowTriggerError(self.trigger) from None
            self._took(processor_s() - began, end - begin)
            if found is not None and (end == len(text) or not self._ends):
                return found
        return None

    def _took(self, spent_s: float, characters: int) -> None:
        """SlowTriggerError where it was too often too slow; quick looks make up for slow ones."""
        self._beyond_s = max(0.0, self._beyond_s + spent_s - SHARE_S * characters)
        if self._beyond_s > MOST_BEYOND_S:
            raise SlowTriggerError(self.trigger)

    @property
    def matches_empty(self) -> bool:
        """It is found in the empty text, and so in every text."""
        return self.search("") is not None


class PatternSet:
    """Many linear patterns, looked for in one pass."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._parts = _compiled_sets([pattern.trigger for pattern in patterns], 0)

    def found(self, text: str) -> list[int]:
        """Which of the patterns are found in `text`, by their place in the sequence."""
        return sorted(first + index for first, part in self._parts for index in part.Match(text) or ())


def _compiled_sets(triggers: list[str], first: int) -> list[tuple[int, Any]]:
    """One set; more where they do not fit into the memory of one. (A set that failed must not be used again.)"""
    if not triggers:
        return []
    re2, _ = _engines()
    made = re2.Set.SearchSet(_options())
    for trigger in triggers:
        made.Add(trigger)
    try:
        made.Compile()
    except re2.error:
        if len(triggers) == 1:
            return [(first, _Alone(Pattern(triggers[0])))]
        half = len(triggers) // 2
        return _compiled_sets(triggers[:half], first) + _compiled_sets(triggers[half:], first + half)
    return [(first, made)]


class _Alone:
    """A pattern too large for a set, with RE2's own name for the method."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def Match(self, text: str) -> list[int]:  # noqa: N802 (the name is RE2's)
        return [0] if self._pattern.search(text) is not None else []


@cache
def _engines() -> tuple[Any, Any]:
    try:
        import re2
        import regex
    except ImportError as error:
        raise AgentUnableError(
            f"stream rules need the packages google-re2 and regex ({error}): pip install 'loopsup[rules]'"
        ) from error
    return re2, regex


@cache
def _options() -> Any:
    re2, _ = _engines()
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    return options


def _beyond(refused: Exception) -> bool:
    """RE2 refused what another engine may know, so that one's words are the better ones."""
    return any(word in str(refused) for word in ("perl operator", "escape sequence", "repetition size", "too large"))


def _translated(trigger: str) -> str:
    """For `regex`: `$` as JavaScript has it (not before a final newline), `\\k<name>` by its Python name."""
    flags = _LEADING_FLAGS.match(trigger)
    multiline = flags is not None and "m" in flags.group(1)
    out: list[str] = []
    in_class = False
    position = 0
    while position < len(trigger):
        char = trigger[position]
        if char == "\\":
            named = re.compile(r"\\k<(\w+)>").match(trigger, position)
            piece = f"(?P={named.group(1)})" if named and not in_class else trigger[position : position + 2]
            position += len(named.group(0)) if named and not in_class else 2
            out.append(piece)
            continue
        if char == "[":
            in_class = True
        elif char == "]":
            in_class = False
        out.append(END if char == "$" and not in_class and not multiline else char)
        position += 1
    return "".join(out)


def encodable(text: str) -> str:
    """Without lone surrogates: RE2 sees UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _clause(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
