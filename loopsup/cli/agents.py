"""`loopsup agents`: the adapters found, what each can do, and what is missing on this machine.

Every installed adapter is a row, also a broken one: it is named with its error and breaks no other. By default a
row says whether the agent can be started here; `--verbose` adds what it can do, `--json` has everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from loopsup.cli import render
from loopsup.cli.common import JsonOption, out, out_json
from loopsup.errors import EXIT_DONE, UsageError
from loopsup.ports import Adapter, Broken, Capabilities

VERSION = 1
NOT_INSTALLED = "not installed"
# What each capability is for the person at the keyboard.
CAPABILITIES: Mapping[str, str] = {
    "abort": "be interrupted",
    "rewind": "forget an answer that was cut off",
    "continue_without_message": "go on without a new message",
    "keep_partial": "keep an answer that was cut off",
    "hold_tools": "hold a tool back until it is checked",
    "native_tool": "decide with a tool of its own",
    "terminate_on_tool": "end its turn with the decision",
    "follow_up_queue": "take messages while it works",
    "withdraw": "give such messages back",
    "turn_events": "count each model call",
    "usage": "count tokens",
    "resume": "take up a conversation again",
    "permissions": "ask before it runs a tool",
    "deny_tools": "be refused a tool",
    "verbatim": "get the objective byte for byte",
    "branches": "branch a conversation",
    "task_complete": "say itself that a task is complete",
    "process": "run as a process of this machine",
    "shell_tool": "decide with `loopsup control` in its shell",
    "terminal": "show a screen of its own",
}


def agents(
    path: Annotated[
        str | None,
        typer.Option("--path", metavar="NAME", help="Print where a file for an agent is: pi-extension for `pi -e`."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also say what each can do and what it cannot.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Show the agents loopsup can drive, and what is missing for the others."""
    from loopsup import registry

    if path is not None:
        return _show_path(path, registry.load_all(), as_json=as_json)
    from loopsup.store.config import load_config

    config = load_config()
    commands = {name: agent.command for name, agent in config.agents.items()}
    rows = [row(found, commands, os.environ) for found in registry.load_all()]
    rows += [unknown(name, "[agents]") for name in commands if name not in registry.names()]
    if config.default_agent is not None and config.default_agent not in {*registry.names(), *commands}:
        rows.append(unknown(config.default_agent, "default_agent"))
    if as_json:
        out_json({"version": VERSION, "agents": rows})
    else:
        for line in text_lines(rows, render.terminal_width(), verbose=verbose):
            render.write(line)
    return EXIT_DONE


def _show_path(name: str, adapters: Iterable[Adapter | Broken], *, as_json: bool) -> int:
    files: dict[str, str] = {}
    for found in adapters:
        files |= {key: str(where) for key, where in getattr(found, "files", {}).items()}
    if name not in files:
        raise UsageError(f"there is no file called {name!r}; there is: {', '.join(sorted(files)) or 'none'}")
    if as_json:
        out_json({"version": VERSION, "path": files[name]})
    else:
        out(files[name])
    return EXIT_DONE


def row(found: Adapter | Broken, commands: Mapping[str, str | None], env: Mapping[str, str]) -> dict[str, Any]:
    """One adapter as JSON. `missing` None: it can be started here. `error`: the adapter itself is broken."""
    if isinstance(found, Broken):
        return {"name": found.name, "summary": None, "missing": None, "error": found.error, "capabilities": None}
    try:
        missing, summary = found.missing(commands.get(found.name), env), str(found.summary)
        can = {field.name: bool(getattr(found.capabilities, field.name)) for field in fields(Capabilities)}
    except Exception as error:  # a third party's code may raise anything; it becomes its own row
        return row(Broken(found.name, f"{type(error).__name__}: {error}"), commands, env)
    return {"name": found.name, "summary": summary, "missing": missing, "error": None, "capabilities": can}


def unknown(name: str, where: str) -> dict[str, Any]:
    """An agent only the configuration knows."""
    error = f"{NOT_INSTALLED}: {where} of the configuration names it, and no adapter of that name is there"
    return {"name": name, "summary": None, "missing": None, "error": error, "capabilities": None}


def text_lines(rows: list[dict[str, Any]], width: int, *, verbose: bool) -> Iterator[str]:
    """The rows for people."""
    if not rows:
        yield "no agent adapter is installed; `pip install loopsup` brings some"
    for found in rows:
        name = render.one_line(found["name"], width)
        if found["error"] is not None:
            absent = str(found["error"]).startswith(NOT_INSTALLED)
            yield render.one_line(f"{name}: {'unknown' if absent else 'broken'}", width)
            yield from _wrapped(found["error"], width)
            continue
        missing = found["missing"]
        if not verbose:
            told = f"ready · {found['summary']}" if missing is None else f"not ready · {missing}"
            yield from _wrapped(f"{name}: {told}", width, "")
            continue
        yield render.one_line(f"{name}: {'ready' if missing is None else 'not ready'}", width)
        yield from _wrapped(found["summary"], width)
        if missing is not None:
            yield from _wrapped(missing, width)
        yield from _abilities(found["capabilities"], width)
    if rows and not verbose:
        yield from _wrapped("`loopsup agents --verbose` also says what each can do", width, "")


def _abilities(capabilities: Mapping[str, bool], width: int) -> Iterator[str]:
    for label, wanted in (("can", True), ("cannot", False)):
        names = [CAPABILITIES[key] for key, able in capabilities.items() if able is wanted]
        if names:
            yield from _wrapped(f"{label}: {', '.join(names)}", width)


def _wrapped(text: str, width: int, before: str = render.INDENT) -> list[str]:
    import textwrap

    clean = " ".join(render.safe(part) for part in text.split())
    return textwrap.wrap(clean, width, initial_indent=before, subsequent_indent=before + render.INDENT)
