"""Which streams a rule watches, and whether the paths of a tool call are those it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopsup.core.rules import Rule, Source, Stream, ToolScope
from loopsup.matching.paths import fits, glob
from loopsup.matching.patterns import BadTriggerError


def unbounded(rule: Rule) -> bool:
    """It watches more than certain tools or paths."""
    return not rule.globs and (rule.scope is None or rule.scope.text or rule.scope.thinking)


def scoped(rule: Rule, stream: Stream) -> bool:
    scope = rule.scope
    if scope is None:
        return False
    match stream.source:
        case Source.TEXT:
            return scope.text
        case Source.THINKING:
            return scope.thinking
        case Source.TOOL:
            return any(_names(tool, stream) for tool in scope.tools)


def _names(tool: ToolScope, stream: Stream) -> bool:
    return tool.name == "" or tool.name.lower() == stream.tool.lower()


def bad_globs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Those that are none, each with why: a rule that cannot say where it acts does not act."""
    for each in (*rule.globs, *(tool.glob for tool in (rule.scope.tools if rule.scope else ()) if tool.glob)):
        try:
            glob(each)
        except BadTriggerError as error:
            yield each, f"it is no file glob ({error}), and without it the whole rule does not act"


def wants_path(rule: Rule, stream: Stream) -> bool:
    if rule.globs:
        return True
    if rule.scope is None or stream.source is not Source.TOOL:
        return False
    return all(tool.glob for tool in rule.scope.tools if _names(tool, stream))


def path_fits(rule: Rule, stream: Stream, paths: Sequence[str]) -> bool:
    if rule.globs and not any(fits(glob, path) for glob in rule.globs for path in paths):
        return False
    if rule.scope is None or stream.source is not Source.TOOL:
        return True
    tools = [tool for tool in rule.scope.tools if _names(tool, stream)]
    return any(not tool.glob or any(fits(tool.glob, path) for path in paths) for tool in tools)
