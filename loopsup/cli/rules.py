"""`loopsup rules`: the stream rules of this directory, and what they would do.

`list` shows every rule file and what becomes of it, `check` what is wrong in them, `test` where one would have acted
in a conversation that is over, `trust` lets those of the project act as they are now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopsup.cli.common import JsonOption, here, out_json
from loopsup.errors import EXIT_DONE, NotFoundError, UsageError

if TYPE_CHECKING:
    from loopsup.store.rules import Found

VERSION = 1
ACTIONS = ("list", "check", "test", "trust")

ActionArgument = Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to do.")]
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="A rule file: for `test`, and for `check`; default: all.")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", metavar="TRANSCRIPT", help="For `test`: an events.jsonl, or any text."),
]
RemoveOption = Annotated[bool, typer.Option("--remove", help="For `trust`: trust this project's rules no more.")]


def rules(
    action: ActionArgument,
    file: FileArgument = None,
    against: AgainstOption = None,
    remove: RemoveOption = False,
    as_json: JsonOption = False,
) -> int:
    """Show, check, try out and trust the stream rules of this directory."""
    if action not in ACTIONS:
        raise UsageError(f"'{action}' is nothing that `loopsup rules` can do; say one of: {', '.join(ACTIONS)}")
    for given, option, wanted in ((against, "--against", "test"), (remove, "--remove", "trust")):
        if given and action != wanted:
            raise UsageError(f"{option} belongs to `loopsup rules {wanted}`")
    if file is not None and action not in ("check", "test"):
        raise UsageError(f"`loopsup rules {action}` takes no file")
    match action:
        case "list":
            return _list(as_json)
        case "check":
            return _check(file, as_json)
        case "test":
            return _test(file, against, as_json)
        case _:
            return _trust(remove, as_json)


# ---- list and check ---------------------------------------------------------------------------------


def _list(as_json: bool) -> int:
    from loopsup.store.config import load_config
    from loopsup.store.rules import find_rules

    config = load_config()
    rows = [_row(each) for each in find_rules(here(), os.environ, config)]
    if as_json:
        out_json({"version": VERSION, "enabled": config.ttsr.enabled, "rules": rows})
        return EXIT_DONE
    if not config.ttsr.enabled:
        _write("stream rules are switched off in the configuration: [ttsr] enabled = false")
    if not rows:
        _write("no rules: they are files like .loopsup/rules/no-force-push.md")
    for row in rows:
        for line in _lines(row):
            _write(line)
    return EXIT_DONE


def _check(file: Path | None, as_json: bool) -> int:
    """Exit 2 where something is wrong: for a commit hook or CI."""
    from loopsup.store.config import load_config
    from loopsup.store.rules import Standing, find_rules

    found = [_file(file)] if file is not None else find_rules(here(), os.environ, load_config())
    rows = [_row(each) for each in found if each.standing is not Standing.NO_TRIGGER or file is not None]
    wrong = [row for row in rows if row["problems"] or row["standing"] == Standing.UNREADABLE]
    if file is not None and rows[0]["standing"] == Standing.NO_TRIGGER:
        rows[0]["problems"].append(rows[0]["why"] or "it has no trigger, so it is no stream rule")
        wrong = rows
    if as_json:
        out_json({"version": VERSION, "ok": not wrong, "rules": rows})
    else:
        for row in wrong:
            for problem in row["problems"] or [row["why"]]:
                _write(f"{row['path']}: {problem}")
        if not wrong:
            _write(f"{_count(len(rows))}, nothing wrong")
        idle = [row["name"] for row in rows if row["standing"] in (Standing.UNTRUSTED, Standing.CHANGED)]
        if idle:
            _write(f"not trusted, so it does not act: {', '.join(idle)}; see `loopsup rules trust`")
    return UsageError.exit if wrong else EXIT_DONE


def _count(number: int) -> str:
    return "1 rule" if number == 1 else f"{number} rules"


def _row(found: Found) -> dict[str, Any]:
    """One rule file as JSON."""
    from loopsup.core.rules import Rule
    from loopsup.matching.matcher import Matcher

    rule: Rule = found.rule
    wrong = [f"the trigger {trigger!r} is not understood: {why}" for _, trigger, why in Matcher([rule]).problems]
    empty = (
        [] if rule.content.strip() or not rule.triggers else ["it has no text, so the model would be told nothing"]
    )
    return {
        "name": rule.name,
        "path": rule.path,
        "file": str(found.file),
        "standing": found.standing.value,
        "project": None if found.project is None else str(found.project),
        "shadowedBy": found.by,
        "why": found.why,
        "problems": [*found.problems, *wrong, *empty],
        "triggers": list(rule.triggers),
        "scope": _scope(rule),
        "globs": list(rule.globs),
        "repeat": rule.repeat,
        "gap": rule.gap,
        "context": rule.context,
    }


def _scope(rule: Any) -> list[str] | None:
    if rule.scope is None:
        return None
    words = [word for word in ("text", "thinking") if getattr(rule.scope, word)]
    for tool in rule.scope.tools:
        name = f"tool:{tool.name}" if tool.name else "tool"
        words.append(f"{name}({tool.glob})" if tool.glob else name)
    return words


def _lines(row: dict[str, Any]) -> Iterator[str]:
    by = f" by {row['shadowedBy']}" if row["shadowedBy"] else ""
    yield f"{row['name']}: {row['standing']}{by}  {row['path']}"
    if row["scope"]:
        yield f"  scope: {', '.join(row['scope'])}"
    yield from _indented(row["triggers"], "trigger: ")
    for told in (row["why"], *row["problems"]):
        if told:
            yield f"  {told}"


def _indented(triggers: list[str], label: str = "") -> Iterator[str]:
    """Patterns can be long: as much of each as fits into a line."""
    from loopsup.cli import render

    before = render.INDENT + label
    room = max(1, render.terminal_width() - len(before))
    yield from (before + render.fit(render.safe(trigger), room) for trigger in triggers)


# ---- test -------------------------------------------------------------------------------------------


def _test(file: Path | None, against: Path | None, as_json: bool) -> int:
    from loopsup.cli.transcripts import transcript
    from loopsup.matching.matcher import Matcher
    from loopsup.matching.replay import replay
    from loopsup.store.config import load_config
    from loopsup.store.rules import rule_settings

    if file is None or against is None:
        raise UsageError("say which rule and on what: loopsup rules test FILE --against TRANSCRIPT")
    found = _file(file)
    problems = Matcher([found.rule]).problems
    if not found.rule.triggers or len(problems) == len(found.rule.triggers):
        why = problems[0][2] if problems else found.why or "it has no trigger"
        raise UsageError(f"{file} is no rule that could act: {why}")
    findings = list(replay(found.rule, rule_settings(load_config().ttsr), transcript(against)))
    if as_json:
        rows = [
            {
                "line": each.line,
                "turn": each.turn,
                "stream": each.stream,
                "trigger": each.trigger,
                "excerpt": each.excerpt,
                "acts": each.acts,
            }
            for each in findings
        ]
        out_json({"version": VERSION, "rule": found.rule.name, "findings": rows})
        return EXIT_DONE
    for each in findings:
        what = "would interrupt" if each.acts else "found again, would not act"
        _write(f"{against}:{each.line}: {each.stream}: {what}: {each.excerpt}")
    acting = sum(each.acts for each in findings)
    _write(f"{found.rule.name}: found {_times(len(findings))}, would have interrupted {_times(acting)}")
    return EXIT_DONE


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _file(file: Path) -> Found:
    from loopsup.store.rules import Standing, one_rule

    found = one_rule(file)
    if found.standing is Standing.UNREADABLE:
        raise UsageError(f"the rule {file} cannot be read: {found.why}")
    return found


# ---- trust ------------------------------------------------------------------------------------------


def _trust(remove: bool, as_json: bool) -> int:
    from loopsup.store.config import load_config
    from loopsup.store.home import find_home
    from loopsup.store.rules import Standing, find_rules, name_in
    from loopsup.store.trust import trust

    away = (Standing.NO_TRIGGER, Standing.UNREADABLE)
    found = [each for each in find_rules(here(), os.environ, load_config()) if each.project is not None]
    if not remove:
        found = [each for each in found if each.standing not in away]
    projects = {each.project for each in found if each.project is not None}
    if not projects:
        raise NotFoundError("this project has no stream rules; they are files like .loopsup/rules/no-force-push.md")
    for project in sorted(projects):
        files = {name_in(project, each.file): each.mark for each in found if each.project == project}
        trust(find_home(), os.fsdecode(project), {} if remove else files)
    rows = [{"name": each.rule.name, "path": each.rule.path, "triggers": list(each.rule.triggers)} for each in found]
    if as_json:
        out_json({"version": VERSION, "trusted": not remove, "rules": rows})
        return EXIT_DONE
    for row in rows if not remove else ():
        _write(str(row["path"]))
        for line in _indented(list(row["triggers"])):
            _write(line)
    where = ", ".join(os.fsdecode(project) for project in sorted(projects))
    told = f"the rules of {where} are not trusted any more" if remove else f"{_count(len(rows))} of {where} trusted"
    _write(f"{told}; sessions that run now keep what they started with")
    return EXIT_DONE


def _write(text: str) -> None:
    from loopsup.cli import render

    render.write(render.sentences(render.safe(text), sys.stdout))
