"""Which rules' triggers are found in a turn's stream: the buffers behind `core.rules.Matching`.

What is looked at. Rules without `scope` share one buffer a turn: text and tool arguments in the order in which they
come (D-20). A rule with a scope is looked for in each stream it names by itself: text, thinking, or the arguments of
each tool call. Arguments are matched as they are streamed (JSON, still escaped) and, once they are complete, as
every text in them, unescaped. A rule for certain paths acts once such a path is known: while it streams, or with the
complete arguments.

What it costs. A piece is looked at together with the 4096 characters before it, so the cost of a character does not
grow with the answer; what needs more room than that is found when the buffer has grown by a quarter, and at the end
of the block. All patterns of a buffer are looked for in one pass. No rule: no work at all.

When it is told. At once, at the piece that completes it; but what depends on the text behind it (`\\b`, `$`, a look
ahead) and ends where the stream ends now, only when more has come, or the block is over.

In a turn a rule is named once for each stream (the repeat policy cannot change in mid-turn).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loopsup.core.rules import NO_HITS, Hits, Rule, Source, Stream
from loopsup.matching.paths import paths_of, streamed_paths
from loopsup.matching.patterns import BadTriggerError, Pattern, PatternSet, SlowTriggerError, encodable
from loopsup.matching.scopes import bad_globs, path_fits, scoped, unbounded, wants_path

WINDOW = 4096  # characters before a piece that are looked at again with it
GROWTH = 4  # the whole buffer is looked at when it has grown by a 4th part: in all, five times its length
MAX_BUFFER = 4 * 1024 * 1024  # characters kept of one buffer; no answer is a tenth of it
SHARED = ""  # the key of the one buffer of rules without scope
MAX_DEPTH = 64  # of a tool's arguments; what is nested deeper is not looked at
PATH_SEARCHED = 64 * 1024  # characters of streamed arguments in which a path is looked for


@dataclass(slots=True)
class _Entry:
    """A rule and its patterns, by its place among the rules."""

    place: int
    rule: Rule
    patterns: tuple[Pattern, ...]


class Matcher:
    """The `Matching` of one session. A trigger that is no pattern is left out; `problems` says which."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.problems: list[tuple[str, str, str]] = []
        """Rule, trigger, what is wrong with it."""
        self._entries = [entry for place, rule in enumerate(rules) if (entry := self._entry(place, rule)).patterns]
        self._shared = _Group([entry for entry in self._entries if entry.rule.scope is None])
        self._groups: dict[tuple[Source, str], _Group] = {}
        self._buffers: dict[object, _Buffer] = {}
        self._named: set[tuple[int, object]] = set()
        self._slow: set[int] = set()
        self._heard: set[Stream] = set()

    def _entry(self, place: int, rule: Rule) -> _Entry:
        patterns: list[Pattern] = []
        wrong = list(bad_globs(rule))
        self.problems += [(rule.name, *each) for each in wrong]
        for trigger in () if wrong else rule.triggers:
            try:
                pattern = Pattern(trigger)
                if unbounded(rule) and pattern.matches_empty:
                    raise BadTriggerError("it is found in every text, so it would interrupt every response")
                patterns.append(pattern)
            except BadTriggerError as error:
                self.problems.append((rule.name, trigger, str(error)))
            except SlowTriggerError:
                self.problems.append((rule.name, trigger, "it takes too long, even on an empty text"))
        return _Entry(place, rule, tuple(patterns))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those with at least one trigger that can be looked for."""
        return tuple(entry.rule for entry in self._entries)

    @property
    def idle(self) -> bool:
        return not self._entries

    def turn(self) -> None:
        self._buffers.clear()
        self._named.clear()
        self._heard.clear()

    def delta(self, stream: Stream, text: str) -> Hits:
        return self._feed(stream, text, final=False)

    def _feed(self, stream: Stream, text: str, *, final: bool) -> Hits:
        if not self._entries or not text:
            return NO_HITS
        self._heard.add(stream)
        look = _Look()
        text = encodable(text)
        for key, group in self._looked_at(stream):
            for stretch, start in self._buffers.setdefault(key, _Buffer()).add(text):
                self._look(group, key, stretch, start, look, final=final)
        return self._hits(stream, look, lambda: self._streamed_paths(stream))

    def whole(self, stream: Stream, text: str) -> Hits:
        if stream not in self._heard:
            hits = self._feed(stream, text, final=True)
        else:
            look = _Look()
            for key, group in self._looked_at(stream):
                self._look(group, key, self._buffers[key].all(), 0, look)
            hits = self._hits(stream, look, lambda: self._streamed_paths(stream))
        self._heard.discard(stream)  # the next block may have no pieces
        return hits

    def call(self, stream: Stream, arguments: object) -> Hits:
        if not self._entries:
            return NO_HITS
        look = _Look()
        texts = [encodable(text) for text in (*texts_in(arguments), _json(arguments))]
        for key, group in self._looked_at(stream):
            for text in texts:
                self._look(group, key, text, 0, look)
        return self._hits(stream, look, lambda: paths_of(arguments))

    def _looked_at(self, stream: Stream) -> Iterator[tuple[object, _Group]]:
        """The buffers this stream goes into, each with its patterns."""
        if self._shared and stream.source is not Source.THINKING:
            yield SHARED, self._shared
        group = self._group(stream)
        if group:
            yield stream, group

    def _group(self, stream: Stream) -> _Group:
        kind = (stream.source, stream.tool.lower())
        if kind not in self._groups:
            self._groups[kind] = _Group([entry for entry in self._entries if scoped(entry.rule, stream)])
        return self._groups[kind]

    def _look(self, group: _Group, key: object, text: str, start: int, look: _Look, *, final: bool = True) -> None:
        """`final`: nothing will come behind this text."""
        for entry, pattern in group.candidates(text, start):
            place = entry.place
            if place in look.found or place in self._slow or (place, key) in self._named:
                continue
            try:
                if _is_found(pattern, text, start, final):
                    look.found.add(place)
            except SlowTriggerError:
                self._slow.add(place)
                look.slow.add(place)

    def _hits(self, stream: Stream, look: _Look, paths: Callable[[], tuple[str, ...]]) -> Hits:
        if not look.found and not look.slow:
            return NO_HITS
        known: tuple[str, ...] | None = None
        names = []
        for entry in self._entries:
            rule = entry.rule
            if entry.place not in look.found or entry.place in self._slow:
                continue
            if wants_path(rule, stream):
                known = paths() if known is None else known
                if not path_fits(rule, stream, known):
                    continue
            self._named.add((entry.place, SHARED if rule.scope is None else stream))
            names.append(rule.name)
        return Hits(tuple(names), tuple(entry.rule.name for entry in self._entries if entry.place in look.slow))

    def _streamed_paths(self, stream: Stream) -> tuple[str, ...]:
        """Paths in arguments that are still being streamed."""
        buffer = self._buffers.get(stream)
        return () if buffer is None else streamed_paths(buffer.head())


@dataclass(slots=True)
class _Look:
    """What one call has found, by the rules' places."""

    found: set[int] = field(default_factory=set)
    slow: set[int] = field(default_factory=set)


class _Group:
    """The patterns looked for in one buffer."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        pairs = [(entry, pattern) for entry in entries for pattern in entry.patterns]
        self._linear = [pair for pair in pairs if pair[1].linear]
        self._limited = [pair for pair in pairs if not pair[1].linear]
        self._set = PatternSet([pattern for _, pattern in self._linear])

    def __bool__(self) -> bool:
        return bool(self._linear or self._limited)

    def candidates(self, text: str, start: int) -> Iterator[tuple[_Entry, Pattern]]:
        """What may be found in `text` from `start` on. With `start` 0, linear ones are found."""
        if self._linear:
            for index in self._set.found(text[start:] if start else text):
                yield self._linear[index]
        yield from self._limited


@dataclass(slots=True)
class _Buffer:
    """What has been streamed, in pieces; `tail` is what the next piece is looked at with."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    tail: str = ""
    cut: bool = False
    looked_at: int = WINDOW

    def add(self, text: str) -> Iterator[tuple[str, int]]:
        """The stretches to be looked at now, each with the place where it begins: before that is only context."""
        self.pieces.append(text)
        self.length += len(text)
        stretch = self.tail + text
        yield stretch, int(self.cut)
        if len(stretch) > WINDOW:
            self.cut = True
            self.tail = stretch[-WINDOW - 1 :]  # and one character of context, for \b and ^
        else:
            self.tail = stretch
        if self.length >= self.looked_at + self.looked_at // GROWTH:
            yield self.all(), 0
            self.looked_at = self.length

    def all(self) -> str:
        joined = "".join(self.pieces)[-MAX_BUFFER:]
        self.pieces = [joined]
        return joined

    def head(self) -> str:
        """Its first part; not joined anew for each piece, and so at the same cost however long it is."""
        head = ""
        for piece in self.pieces:
            if len(head) >= PATH_SEARCHED:
                break
            head += piece[:PATH_SEARCHED]
        return head


def _is_found(pattern: Pattern, text: str, start: int, final: bool) -> bool:
    """Of a candidate. SlowTriggerError."""
    unsure = pattern.tentative and not final
    if start == 0 and pattern.linear and not unsure:
        return True
    where = pattern.search(text, start)
    return where is not None and not (unsure and where[1] == len(text))


def texts_in(value: object, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Every text in a tool's arguments."""
    match value:
        case str():
            yield value
        case Mapping() if depth:
            for each in value.values():
                yield from texts_in(each, depth - 1)
        case list() | tuple() if depth:
            for each in value:
                yield from texts_in(each, depth - 1)


def _json(arguments: object) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        return ""
