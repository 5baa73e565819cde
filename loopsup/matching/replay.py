"""What a rule would have done in a conversation that is over: for `loopsup rules test`.

Each turn is looked at as it would have been live, but whole: the log has no pieces. Whether the rule would have acted
is decided by the same state machine; that the conversation would then have gone another way, nobody can replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loopsup.core.model import Moment
from loopsup.core.rule_events import Elapsed, Inject, Injected, Interrupt, Matched, Prompted, TurnEnded, TurnStarted
from loopsup.core.rule_state import WINDOW_MS, opened, step
from loopsup.core.rules import Rule, RuleSettings, Source, Stream
from loopsup.matching.matcher import Matcher, texts_in
from loopsup.matching.patterns import BadTriggerError, Pattern, SlowTriggerError, encodable

EXCERPT = 80  # characters of a line that are shown around what was found


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn begins on this line. `fresh`: it answers a new request."""

    line: int
    id: str
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A block of the turn. `arguments`: of a tool call, decoded; else `text`, which begins on `line`.

    `lines`: the line numbers of the text are those of the transcript.
    """

    line: int
    stream: Stream
    text: str = ""
    arguments: object = None
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The rule's trigger is found. `acts`: it would have interrupted; else its repetition, or the cap, forbids."""

    line: int
    turn: str
    stream: str
    trigger: str
    excerpt: str
    acts: bool


def replay(rule: Rule, settings: RuleSettings, transcript: Iterable[Turn | Said]) -> Iterator[Finding]:
    """Where the rule is found. Nothing for a trigger that is no pattern: see `Matcher.problems`."""
    matcher = Matcher([rule])
    state = step(opened(matcher.rules, settings), Prompted(True), _NOW).state
    turn = ""
    for each in transcript:
        if isinstance(each, Turn):
            if turn:
                state = step(state, TurnEnded(), _NOW).state
            if each.fresh:
                state = step(state, Prompted(True), _NOW).state
            matcher.turn()
            turn = each.id
            state = step(state, TurnStarted(turn), _NOW).state
            continue
        tool = each.stream.source is Source.TOOL
        hits = matcher.call(each.stream, each.arguments) if tool else matcher.whole(each.stream, each.text)
        if not hits.names:
            continue
        made = step(state, Matched(turn, hits.names), _NOW)
        state = made.state
        acts = any(isinstance(effect, Interrupt) for effect in made.effects)
        after = step(state, Elapsed(), _NOW.plus(WINDOW_MS))
        state = after.state
        for effect in after.effects:
            if isinstance(effect, Inject):
                state = step(state, Injected(effect.token), _NOW).state
        yield _finding(rule, each, turn, acts)


_NOW = Moment(0, 0)


def _finding(rule: Rule, said: Said, turn: str, acts: bool) -> Finding:
    stream = said.stream.tool or said.stream.source.value
    texts = [encodable(text) for text in texts_in(said.arguments)] if said.text == "" else [encodable(said.text)]
    for trigger in rule.triggers:
        for text in texts:
            where = _where(trigger, text)
            if where is not None:
                line = said.line + (text.count("\n", 0, where[0]) if said.lines else 0)
                return Finding(line, turn, stream, trigger, _excerpt(text, *where), acts)
    return Finding(said.line, turn, stream, rule.triggers[0], "", acts)


def _where(trigger: str, text: str) -> tuple[int, int] | None:
    try:
        return Pattern(trigger).search(text)
    except (BadTriggerError, SlowTriggerError):
        return None


def _excerpt(text: str, start: int, end: int) -> str:
    """What was found, with the rest of its line around it."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    line = text[max(begin, start - EXCERPT // 2) : len(text) if stop < 0 else stop]
    return line[:EXCERPT]
