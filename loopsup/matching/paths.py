"""The paths a tool call is about, and globs that say which paths are meant."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from functools import cache

from loopsup.matching.patterns import Pattern, encodable

PATH_KEYS = frozenset(
    {"path", "file_path", "filepath", "file", "filename", "notebook_path", "target_file", "paths", "files", "uri"}
)
_STREAMED = r'(?i)"(?:path|file_?path|file|filename|notebook_path|target_file|uri)"\s*:\s*"((?:[^"\\]|\\.)*)"'
_PATCHED = "*** "  # heads in a patch: `*** Update File: src/a.ts`
_FILE = " File: "


def fits(pattern: str, path: str) -> bool:
    """Whether a path, or its end from some name on, fits: `*.ts` and `src/*.ts` both fit /w/src/a.ts."""
    return glob(pattern).search(encodable(path).replace("\\", "/")) is not None


@cache
def glob(pattern: str) -> Pattern:
    """`*`, `?` and `[…]` within a name, `**` across names, `{a,b}` one of them. BadTriggerError."""
    return Pattern(rf"(?s)^(?:.*/)?{_globbed(pattern.replace(chr(92), '/').removeprefix('./'))}$")


_SIGNS = (("**/", "(?:.*/)?"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]"))


def _globbed(pattern: str) -> str:
    out: list[str] = []
    depth = position = 0
    while position < len(pattern):
        sign, piece = next(((sign, piece) for sign, piece in _SIGNS if pattern.startswith(sign, position)), ("", ""))
        char = pattern[position]
        end = pattern.find("]", position + 2) if char == "[" else -1
        if sign:
            out.append(piece)
        elif end > 0:
            out.append(_one_of(pattern[position + 1 : end]))
            sign = pattern[position : end + 1]
        elif char == "{" and "}" in pattern[position:]:
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        else:
            out.append("|" if char == "," and depth else re.escape(char))
        position += len(sign) or 1
    return "".join(out) + ")" * depth


def _one_of(inside: str) -> str:
    escaped = inside.replace("\\", "\\\\").replace("[", "\\[")
    return f"[{'^' + escaped[1:] if escaped[0] in '!^' else escaped}]"


def paths_of(arguments: object) -> tuple[str, ...]:
    """The paths among a tool's arguments: under the keys tools use for them, and in the heads of a patch."""
    found: list[str] = []
    if isinstance(arguments, str):
        found += _patched(arguments)
    elif isinstance(arguments, list | tuple):
        found += [path for each in arguments for path in paths_of(each)]
    elif isinstance(arguments, Mapping):
        for key, value in arguments.items():
            if str(key).lower() in PATH_KEYS:
                found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
            else:
                found += paths_of(value)
    return tuple(found)


def _patched(text: str) -> list[str]:
    if _PATCHED not in text:
        return []
    heads = [line for line in text.splitlines() if line.startswith(_PATCHED) and _FILE in line]
    return [head.split(_FILE, 1)[1].strip() for head in heads]


def streamed_paths(text: str) -> tuple[str, ...]:
    """The paths in arguments that are still being streamed (JSON, its end missing)."""
    found = []
    position = 0
    while (where := _key().search(text, position)) is not None:
        begin, position = where
        with contextlib.suppress(ValueError):
            found.append(str(json.loads(text[begin:position].partition(":")[2].strip(), strict=False)))
    return tuple(found)


@cache
def _key() -> Pattern:
    return Pattern(_STREAMED)
