"""What a stream rule is: values, the reminder's words, and what a matching engine must offer. No engine here.

A rule watches what the model streams. When one of its triggers is found, the response is ended half-way, the rule's
text goes in as a reminder, and the model tries again. Who does what:

- `Matching` (implemented by `loopsup.matching.matcher`) holds the buffers of the present turn and says which rules'
  triggers are found in what has been streamed so far. It knows nothing of repetition, windows or agents.
- `core.rule_state` decides what comes of a finding: state, event and now give the next state and effects.
- The supervisor feeds both, performs the effects, and asks an agent to do what its capabilities allow.

Only what the root agent streams is watched; events of sub-agents (`agent_id`) are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

REPEAT_GAP = 10  # turns; as the original's default


class ContextMode(StrEnum):
    """What becomes of the partial answer: taken out of the conversation, or left before the reminder."""

    DISCARD = "discard"
    KEEP = "keep"


class RepeatMode(StrEnum):
    """Whether a rule that has been injected may act again: never, or once enough turns have ended."""

    ONCE = "once"
    AFTER_GAP = "after-gap"


class Source(StrEnum):
    """What a piece of the stream is."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a piece of the stream belongs. `tool`, `call`: name and id of the tool call, "" where unknown."""

    source: Source
    tool: str = ""
    call: str = ""


TEXT = Stream(Source.TEXT)
THINKING = Stream(Source.THINKING)


@dataclass(frozen=True, slots=True)
class ToolScope:
    """The arguments of one tool (`name` "": of any), and only where a path among them fits `glob` ("": always)."""

    name: str = ""
    glob: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The streams a rule asked for; each is matched by itself."""

    text: bool = False
    thinking: bool = False
    tools: tuple[ToolScope, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as it acts. `path` is how it is shown to the model and to people.

    `scope` None: text and tool arguments of a turn in one buffer, as they come (D-20). `globs`: the rule acts only
    where a path among a tool's arguments fits one of them. `repeat`, `gap`, `context` None: as configured.
    """

    name: str
    path: str
    content: str
    triggers: tuple[str, ...]
    scope: Scope | None = None
    globs: tuple[str, ...] = ()
    repeat: RepeatMode | None = None
    gap: int | None = None
    context: ContextMode | None = None


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """`[ttsr]` of the configuration. `enabled` False: nothing is matched (D-19)."""

    enabled: bool = True
    context: ContextMode = ContextMode.DISCARD
    repeat: RepeatMode = RepeatMode.ONCE
    gap: int = REPEAT_GAP


@dataclass(frozen=True, slots=True)
class Hits:
    """What a piece of the stream made visible: rules whose trigger is found, in the rules' order, and rules a
    trigger of which took too long and is not tried any more."""

    names: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.slow)


NO_HITS = Hits()


class Matching(Protocol):
    """The engine, with the buffers of one turn. A rule is named again and again while it is found; what was named
    before is the state machine's business. Every call is bounded in time, whatever the patterns."""

    @property
    def idle(self) -> bool:
        """No rule: nothing needs to be fed at all (T-11)."""
        ...

    def turn(self) -> None:
        """A turn starts: every buffer is emptied (T-07, T-12)."""
        ...

    def delta(self, stream: Stream, text: str) -> Hits:
        """A piece of text, thinking, or of a tool call's arguments as they are streamed (JSON, still escaped)."""
        ...

    def whole(self, stream: Stream, text: str) -> Hits:
        """A finished block, whole: for what the checks of its pieces could not see, or where there were none."""
        ...

    def call(self, stream: Stream, arguments: object) -> Hits:
        """A tool call's complete arguments, before the tool runs: every text in them, unescaped."""
        ...


def reminder(rules: tuple[Rule, ...]) -> str:
    """The one message for all rules of a window (T-24, T-27)."""
    return "\n\n".join(_block(rule) for rule in rules)


_LEAD = (
    "Your response was interrupted because it broke a rule of the person you work for. This is no prompt injection:\n"
    "the program that runs you watches for this rule. Follow it, and go on with your task."
)


def _block(rule: Rule) -> str:
    head = f'<system-interrupt reason="rule_violation" rule="{_attribute(rule.name)}" path="{_attribute(rule.path)}">'
    content = rule.content.strip("\n").replace("</system-interrupt", "&lt;/system-interrupt")
    return f"{head}\n{_LEAD}\n\n{content}\n</system-interrupt>"


def _attribute(text: str) -> str:
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return "".join(char if char.isprintable() else f"&#{ord(char)};" for char in text)
