"""`loopsup hooks`: the attention hooks that are ready to use, and the one in force.

`list` shows them, `show` the one in force, `enable` names one in the configuration (a ready one is copied beside it
first, so that no upgrade takes it away), `disable` takes that line out again, and `test` runs the one in force with a
made-up event, as a supervisor would.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from loopsup.cli.common import JsonOption, not_for_agents, out_json
from loopsup.errors import EXIT_DONE, LoopsupError, NotFoundError, RefusedError, UsageError

VERSION = 1
ACTIONS = ("list", "show", "enable", "disable", "test")
MODE = 0o700  # of a copy: a program of the person's own

ActionArgument = Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to do.")]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HOOK]", help="For `enable`: a ready hook by its name, or any file by its path."),
]


def hooks(action: ActionArgument, hook: NameArgument = None, as_json: JsonOption = False) -> int:
    """Show, choose and try the attention hook."""
    if action not in ACTIONS:
        raise UsageError(f"'{action}' is nothing that `loopsup hooks` can do; say one of: {', '.join(ACTIONS)}")
    if (hook is not None) != (action == "enable"):
        raise UsageError(
            "say which: loopsup hooks enable NAME, see `loopsup hooks list`"
            if hook is None
            else f"`loopsup hooks {action}` takes no hook"
        )
    match action:
        case "list":
            return _list(as_json)
        case "show":
            return _show(as_json)
        case "test":
            return _test(as_json)
        case _:
            return _set(hook, as_json)


def _ready() -> dict[str, Path]:
    from loopsup.shipped import hooks as shipped

    return {path.name: path for path in shipped()}


def _copy(name: str) -> Path:
    """Where a ready hook goes: beside the configuration."""
    from loopsup.store.config import config_path

    return config_path().parent.absolute() / "hooks" / name


# ---- list and show ----------------------------------------------------------------------------------


def _list(as_json: bool) -> int:
    from loopsup.store.hooks import find_hook

    named = find_hook().path
    rows = [
        {
            "name": name,
            "path": str(path),
            "summary": _summary(path),
            "enabled": named in (str(path), str(_copy(name))),
        }
        for name, path in _ready().items()
    ]
    if as_json:
        out_json({"version": VERSION, "hooks": rows})
        return EXIT_DONE
    width = max((len(str(row["name"])) for row in rows), default=0)
    for row in rows:
        _write(f"{'*' if row['enabled'] else ' '} {row['name']:<{width}}  {row['summary']}")
    if not rows:
        _write("no hook ships with this installation")
    return EXIT_DONE


def _summary(path: Path) -> str:
    """The first line of its docstring."""
    import ast

    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    said = text.split("\n")[0].removeprefix("Attention hook: ")
    return said.rstrip(".")


def _show(as_json: bool) -> int:
    from loopsup.store.hooks import find_hook

    found = find_hook()
    if as_json:
        out_json({"version": VERSION, "path": found.path, "source": found.source, "problem": found.problem})
    elif found.problem is not None:
        _write(found.problem)
    elif found.path is None:
        _write("no hook is named; `loopsup hooks list` shows the ready ones")
    else:
        _write(found.path)
        _write(f"  named by {found.source}")
    return EXIT_DONE if found.problem is None else UsageError.exit


# ---- enable and disable -----------------------------------------------------------------------------


def _set(hook: str | None, as_json: bool) -> int:
    not_for_agents("choose the hook")
    from loopsup.store.config_edit import check_place, set_hook
    from loopsup.store.hooks import find_hook

    check_place()  # before anything is copied beside it
    path = None if hook is None else _chosen(hook)
    written = set_hook(path)
    found = find_hook()
    if as_json:
        out_json({"version": VERSION, "path": found.path, "source": found.source, "problem": found.problem})
        return EXIT_DONE
    where = os.fsdecode(written)
    if path is None:
        _write(f"{where} names no hook")
    else:
        _write(f"{where} names the attention hook {path}; try it with: loopsup hooks test")
    if path is None and found.path is not None:
        _write(f"still in force: {found.path}, named by {found.source}")
    return EXIT_DONE


def _chosen(hook: str) -> Path:
    """The file to name: a copy of a ready hook, or the one at a path."""
    ready = _ready()
    if hook in ready:
        return _copied(ready[hook], _copy(hook))
    if os.sep not in hook:
        raise NotFoundError(
            f"there is no ready hook '{hook}'; there is: {', '.join(ready) or 'none'} (or give a path)"
        )
    from loopsup.shell.hook import fault

    path = Path(hook).absolute()
    if (wrong := fault(str(path))) is not None:
        raise UsageError(wrong)
    return path


def _copied(source: Path, target: Path) -> Path:
    from loopsup.store.files import read_at_once, storage_error, write_atomic

    content = source.read_bytes()
    try:
        if target.exists() and read_at_once(target, len(content) + 1) != content:
            raise RefusedError(
                f"{target} is there already and differs from the ready hook; enable it by that path, or move it away"
            )
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(target, content)
        target.chmod(MODE)
    except OSError as error:
        raise storage_error("cannot write", target, error) from error
    return target


# ---- test -------------------------------------------------------------------------------------------


def _test(as_json: bool) -> int:
    """Exit 1 where the hook did not do well."""
    import asyncio

    from loopsup.clock import SystemClock
    from loopsup.shell.hook import run_hook
    from loopsup.store.hooks import find_hook

    found = find_hook()
    if found.problem is not None:
        raise UsageError(found.problem)
    if found.path is None:
        raise NotFoundError("no hook is named; see: loopsup hooks list")
    clock = SystemClock()
    result = asyncio.run(run_hook(found.path, _event(clock.now().wall), env=os.environ, clock=clock))
    if as_json:
        out_json({"version": VERSION, "ok": result.ok, "hook": result.data()})
    else:
        _write(result.describe())
        for line in result.output.splitlines():
            _write(f"  {line}")
    return EXIT_DONE if result.ok else LoopsupError.exit


def _event(now: int) -> bytes:
    """An event like that of a loop that has completed."""
    from loopsup.core.limits import HOUR
    from loopsup.core.model import Attention, AttentionStatus
    from loopsup.wire.attention import AttentionSession, attention_bytes

    done = Attention(
        status=AttentionStatus.COMPLETED,
        summary="this is a test of the attention hook",
        source="extension",
        text="asked for with: loopsup hooks test",
        iteration_count=1,
        max_iterations=50,
        protocol_retry_count=0,
        calendar_elapsed_ms=HOUR,
        deadline_remaining_ms=23 * HOUR,
        ended_at=now,
        observed_at=now,
    )
    return attention_bytes(done, "test the attention hook", AttentionSession("test", None, str(Path.cwd())))


def _write(text: str) -> None:
    from loopsup.cli import render

    render.write(render.safe(text))
