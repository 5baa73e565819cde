"""Which hook an attention event goes to, looked up anew at each event.

`on_attention` of the configuration; where that names none, `onAttention` of `$PI_CODING_AGENT_DIR/loop.json`,
else of `~/.pi/agent/loop.json`. Whatever is wrong here is a problem to be shown, never an exception: a broken
file must not touch the loop.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loopsup.errors import LoopsupError
from loopsup.store.config import MAX_BYTES, load_config
from loopsup.store.files import read_at_once
from loopsup.store.home import user_home


@dataclass(frozen=True, slots=True)
class Hook:
    """The hook's file and where it is named, or one sentence on why there is none though one was meant.

    All None: no hook is configured. `path` is what stands in the file; relative, missing and not executable
    ones are problems here already.
    """

    path: str | None = None
    source: str | None = None
    problem: str | None = None


def find_hook(env: Mapping[str, str] = os.environ) -> Hook:
    """The hook in force now. Raises nothing."""
    try:
        named = load_config(env).on_attention
        if named is not None:
            return _checked(named, "on_attention of the configuration")
        return _from_loop_json(_loop_json(env))
    except LoopsupError as error:
        return Hook(problem=error.message)


def _loop_json(env: Mapping[str, str]) -> Path:
    agent_dir = env.get("PI_CODING_AGENT_DIR")
    if agent_dir == "~" or (agent_dir or "").startswith("~/"):
        return user_home(env) / (agent_dir or "")[2:] / "loop.json"
    return (Path(agent_dir) if agent_dir else user_home(env) / ".pi" / "agent") / "loop.json"


def _from_loop_json(path: Path) -> Hook:
    shown = os.fsdecode(path)
    try:
        content = json.loads(read_at_once(path, MAX_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return Hook()
    except OSError as error:
        return Hook(problem=f"cannot read {shown}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Hook(problem=f"{shown} is not valid JSON: {error}")
    if not isinstance(content, dict):
        return Hook(problem=f"{shown} is not a JSON object")
    named = content.get("onAttention")
    if named is None:
        return Hook()
    if not isinstance(named, str):
        return Hook(problem=f"onAttention of {shown} is not text")
    return _checked(named, f"onAttention of {shown}")


def _checked(named: str, source: str) -> Hook:
    shown = ascii(named)
    if "\0" in named:
        return Hook(source=source, problem=f"{source} is {shown}, which is no path")
    path = Path(named)
    if not path.is_absolute():
        return Hook(source=source, problem=f"{source} is {shown}, a relative path; give an absolute one")
    try:
        if not path.is_file():
            return Hook(source=source, problem=f"{source} is {shown}, which is no file")
        if not os.access(path, os.X_OK):
            return Hook(source=source, problem=f"{source} is {shown}, which is not executable; chmod +x it")
    except (OSError, ValueError) as error:
        return Hook(source=source, problem=f"{source} is {shown}, which cannot be used: {error}")
    return Hook(named, source)
