"""One rule file: Markdown with a YAML header, as oh-my-pi and its relatives write them.

The header's keys (what is unknown is left alone, for these files serve other programs, too):

- `name`: else the file's name. `enabled: false`: the rule does not act. `description`: for people.
- `condition`, else `ttsr_trigger`, `ttsrTrigger`, `trigger`: one pattern or a list. One that looks like a file glob
  (`*.rs`) stands for every edit of such files.
- `scope`: `text`, `thinking`, `tool` (or `toolcall`), `tool:NAME`, `tool:NAME(GLOB)`, `NAME(GLOB)`; a list, or with
  commas between. `globs`: only where a path among a tool's arguments fits. `interruptMode`: `prose-only` and
  `tool-only` narrow the scope; `never` means that this rule does not interrupt, so it is not one of ours.
- `repeat` (`repeatMode`, `repeat_mode`, `repeat_policy`): `once`, `after-gap` or `always`; `gap` (`repeatGap`,
  `repeat_gap`): turns; `context` (`contextMode`, `context_mode`): `discard` or `keep`.
- `reminder`: what the model is told, where that is not the whole text below the header.

A header that is not valid YAML is read line by line (`scope: "text","thinking"` is common). Every value is text:
YAML's own notions of yes, no and numbers do not apply.

The YAML reader takes up to 20 microseconds a character, and a repository may be hostile: whoever reads such files
looks at `header_size` before, and at the sum of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.core.rules import ContextMode, RepeatMode, Rule, Scope, ToolScope
from loopsup.errors import AgentUnableError

MAX_HEADER = 8 * 1024  # characters; those of people have a few hundred, and the YAML reader takes a tenth of a second
MAX_BRACKETS = 200  # in a header; the YAML reader takes a time that grows with their square, here 20 ms
MAX_REMINDER = 1024  # bytes, as in the original: longer ones are the text itself
EDITING = ("edit", "write", "create", "multiedit", "apply_patch")  # tools a trigger like `*.rs` stands for
TRIGGER_KEYS = ("condition", "ttsr_trigger", "ttsrTrigger", "trigger")
NOT_OURS = {"astCondition": "a syntax tree", "question": "a question to another model"}

_HEADER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_STREAM_RULE = re.compile(rf"^[\"']?(?:{'|'.join((*TRIGGER_KEYS, *NOT_OURS))})[\"']?[ \t]*:", re.MULTILINE)
_LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]*(.*)$")
_TOOL = re.compile(r"(?:(tool)(?::([\w.-]+))?|([\w.-]+))(?:\(([^)]+)\))?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a file says. `rule.triggers` is empty where it is no stream rule; `enabled` False: it says so itself.

    `why`: one clause on why it does not act though it has a trigger; `problems`: what in it was not understood.
    """

    rule: Rule
    enabled: bool = True
    why: str | None = None
    problems: tuple[str, ...] = ()


def parse(text: str, stem: str, path: str) -> Parsed:
    """The rule in a file. `stem`: its name without ending; `path`: as it is to be shown."""
    problems: list[str] = []
    header, content = _split(text, problems)
    triggers = _triggers(header)
    globbed = [ToolScope(tool, each) for each in triggers if _is_glob(each) for tool in EDITING]
    patterns = tuple(each for each in triggers if not _is_glob(each)) or ((".*",) if globbed else ())
    scope, why = _narrowed(header, _scope(header, globbed, problems))
    rule = Rule(
        name=_first(header, "name") or stem,
        path=path,
        content=_content(header, content),
        triggers=patterns,
        scope=scope,
        globs=tuple(_split_list(header.get("globs"))),
        repeat=_repeat(header, problems),
        gap=_gap(header, problems),
        context=_choice(header, ("context", "contextMode", "context_mode"), ContextMode, problems),
    )
    return Parsed(rule, _first(header, "enabled") != "false", why or _foreign(header, rule), tuple(problems))


def header_size(text: str) -> int:
    """Characters of it that are to be understood: 0 where it is no stream rule."""
    found = _HEADER.match(text)
    return 0 if found is None or not _STREAM_RULE.search(found.group(1)) else len(found.group(1))


def _split(text: str, problems: list[str]) -> tuple[Mapping[str, Any], str]:
    """The header's values and the text below it."""
    found = _HEADER.match(text)
    if found is None:
        return {}, text
    if not _STREAM_RULE.search(found.group(1)):  # somebody else's; no need to understand it
        return {}, text[found.end() :]
    yaml = _yaml()
    header = None
    if sum(map(found.group(1).count, "[{")) <= MAX_BRACKETS:
        with contextlib.suppress(yaml.YAMLError, RecursionError, ValueError):
            header = yaml.load(found.group(1), Loader=yaml.BaseLoader)
    if not isinstance(header, Mapping):
        lines = [match for line in found.group(1).splitlines() if (match := _LINE.match(line))]
        header = {match.group(1): _unquoted(match.group(2).strip()) for match in lines}
        problems.append("its header is not valid YAML and was read line by line")
    return header, text[found.end() :]


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise AgentUnableError(
            f"stream rules need the package pyyaml ({error}): pip install 'loopsup[rules]'"
        ) from error
    return yaml


def _unquoted(value: str) -> str:
    """`"text"`, but not `"text","thinking"`."""
    quote = value[:1]
    if len(value) >= 2 and quote in "\"'" and value.endswith(quote) and quote not in value[1:-1]:
        return value[1:-1]
    return value


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each.strip() for each in values if isinstance(each, str) and each.strip()]


def _first(header: Mapping[str, Any], *keys: str) -> str | None:
    return next((text for key in keys for text in _texts(header.get(key))), None)


def _triggers(header: Mapping[str, Any]) -> list[str]:
    found = next((texts for key in TRIGGER_KEYS if (texts := _texts(header.get(key)))), [])
    return list(dict.fromkeys(found))


def _is_glob(trigger: str) -> bool:
    """As the original tells them apart: `*.rs`, `src/**`, but nothing that could be meant as a pattern."""
    if re.search(r"[\\^$+|()]", trigger) or not re.search(r"[?*\[\]{}]", trigger):
        return False
    return "/" in trigger or re.fullmatch(r"\*\.[^\s/]+", trigger) is not None


def _content(header: Mapping[str, Any], content: str) -> str:
    told = header.get("reminder")
    if isinstance(told, str) and told.strip() and len(told.encode("utf-8", "replace")) <= MAX_REMINDER:
        return told
    return content.strip("\r\n")


# ---- scope ------------------------------------------------------------------------------------------


def _scope(header: Mapping[str, Any], globbed: list[ToolScope], problems: list[str]) -> Scope | None:
    tokens = _split_list(header.get("scope"))
    if not tokens:
        return Scope(tools=tuple(globbed)) if globbed else None
    text = thinking = False
    tools = list(globbed)
    for token in tokens:
        word = token.lower()
        if word == "text":
            text = True
        elif word == "thinking":
            thinking = True
        elif word in ("tool", "toolcall"):
            tools.append(ToolScope())
        elif (found := _TOOL.fullmatch(token)) is not None:
            tools.append(ToolScope(found.group(2) or found.group(3) or "", (found.group(4) or "").strip()))
        else:
            problems.append(f"its scope {token!r} is not understood")
    return Scope(text, thinking, tuple(dict.fromkeys(tools)))


def _split_list(value: object) -> list[str]:
    """A list, or its items in one text with commas between (not within brackets); each without quotes."""
    found: list[str] = []
    for text in _texts(value):
        depth, start = 0, 0
        for at, char in enumerate(text + ","):
            depth += (char in "([{") - (char in ")]}")
            if char == "," and (depth <= 0 or at == len(text)):
                found.append(_unquoted(text[start:at].strip()))
                start = at + 1
    return list(dict.fromkeys(each for each in found if each))


def _narrowed(header: Mapping[str, Any], scope: Scope | None) -> tuple[Scope | None, str | None]:
    mode = _first(header, "interruptMode", "interrupt_mode")
    if mode == "never":
        return scope, "interruptMode: never, it does not want to interrupt"
    if mode == "prose-only":
        scope = Scope(text=True) if scope is None else Scope(scope.text, scope.thinking)
    elif mode == "tool-only":
        scope = Scope(tools=(ToolScope(),) if scope is None else scope.tools)
    if scope is not None and not (scope.text or scope.thinking or scope.tools):
        return scope, "its scope leaves no stream to watch"
    return scope, None


def _foreign(header: Mapping[str, Any], rule: Rule) -> str | None:
    """Why a rule of another program does not act here."""
    agents = _split_list(header.get("agents"))
    if agents and not {"main", "*"} & {each.lower() for each in agents}:
        return f"it is for the agents {', '.join(agents)}"
    for key, what in NOT_OURS.items():
        if _texts(header.get(key)) and not rule.triggers:
            return f"it is triggered by {what} ({key}), which loopsup does not have"
    return None


# ---- repetition -------------------------------------------------------------------------------------


def _repeat(header: Mapping[str, Any], problems: list[str]) -> RepeatMode | None:
    said = _first(header, "repeat", "repeatMode", "repeat_mode", "repeat_policy")
    if said == "always":
        return RepeatMode.AFTER_GAP
    mode: RepeatMode | None = _choice({"repeat": said}, ("repeat",), RepeatMode, problems)
    return mode


def _gap(header: Mapping[str, Any], problems: list[str]) -> int | None:
    said = _first(header, "gap", "repeatGap", "repeat_gap")
    if said is None:
        return 0 if _first(header, "repeat", "repeatMode", "repeat_mode", "repeat_policy") == "always" else None
    if re.fullmatch(r"[0-9]{1,9}", said, re.ASCII):
        return int(said)
    problems.append(f"its gap {said!r} is no whole number")
    return None


def _choice(header: Mapping[str, Any], keys: tuple[str, ...], kind: Any, problems: list[str]) -> Any:
    said = _first(header, *keys)
    if said is None:
        return None
    word = said.lower().replace("_", "-")
    if word in set(kind):
        return kind(word)
    problems.append(f"its {keys[0]} {said!r} is none of {', '.join(kind)}")
    return None
