"""Copilot's session directories: where they are, and the one a person means.

`$COPILOT_HOME/session-state/<uuid>/events.jsonl`, whose first line says when and where the session began.
A session in which nothing was ever said has no such file and cannot be resumed. That file is the session's for
loopsup: the folder of the loop then lies inside the session's directory. Beside it (`<uuid>.loopsup`), Copilot
would take it for a session, list it, and resume it at `copilot --continue`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from loopsup.errors import NotFoundError, UsageError
from loopsup.ports import Conversation

EVENTS = "events.jsonl"
MAX_FIRST_LINE = 1024 * 1024  # the first line is ~500 bytes; a longer one is no start of a session
SHOWN = 5  # matches named in an error


def state_dir(cwd: Path, env: Mapping[str, str]) -> Path:
    """Where Copilot keeps its sessions, in this environment."""
    home = env.get("COPILOT_HOME")
    root = cwd / home if home else Path(env.get("HOME") or Path.home()) / ".copilot"
    return root / "session-state"


def was_spoken_in(conversation: Conversation) -> bool:
    """Copilot has it on disk: it is resumed. Else it is begun, under the same id."""
    return conversation.file is not None and conversation.file.is_file()


def holders(directory: Path) -> list[int]:
    """The living Copilot processes that have this session open. Copilot itself lets several drive one."""
    found = []
    for path in directory.glob("inuse.*.lock"):
        pid = path.name.split(".")[1]
        if pid.isdecimal() and _is_copilot(int(pid)):
            found.append(int(pid))
    return sorted(found)


def _is_copilot(pid: int) -> bool:
    """A stale lock may name a process that is somebody else by now."""
    with contextlib.suppress(psutil.Error, OSError):
        return any("copilot" in word for word in psutil.Process(pid).cmdline())
    return False


def locate(ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
    """By id, unique id prefix, or path."""
    if not ref:
        raise UsageError("an empty reference names no Copilot session; give its id or its directory")
    if "/" in ref:
        return _by_path(cwd / Path(ref).expanduser())
    root = state_dir(cwd, env)
    names = [path.name for path in _directories(root)]
    matches = [name for name in names if name == ref] or [name for name in names if name.startswith(ref)]
    found = [conversation for name in matches if (conversation := _read(root / name)) is not None]
    if not found:
        raise NotFoundError(
            f"no Copilot session with an id starting with {ref!r} below {root}; `copilot --resume` lists them"
        )
    if len(found) > 1:
        shown = ", ".join(conversation.id for conversation in found[:SHOWN])
        more = "…" if len(found) > SHOWN else ""
        raise UsageError(f"{ref!r} fits {len(found)} Copilot sessions ({shown}{more}); give more of the id")
    return found[0]


def _by_path(path: Path) -> Conversation:
    directory = path.parent if path.name == EVENTS else path
    if not directory.is_dir():
        raise NotFoundError(f"there is no Copilot session directory {directory}")
    conversation = _read(directory)
    if conversation is None:
        raise UsageError(f"{directory} is not a Copilot session directory (its {EVENTS} does not begin a session)")
    return conversation


def _directories(root: Path) -> Iterator[Path]:
    yield from sorted(path.parent for path in root.glob(f"*/{EVENTS}"))


def _read(directory: Path) -> Conversation | None:
    try:
        with (directory / EVENTS).open("rb") as file:
            first = json.loads(file.readline(MAX_FIRST_LINE))
        data = first["data"]
        identity, cwd = data["sessionId"], data["context"]["cwd"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if first.get("type") != "session.start" or not isinstance(identity, str) or not isinstance(cwd, str):
        return None
    if identity != directory.name:
        return None  # a copy: Copilot would open the original
    return Conversation(identity, (directory / EVENTS).resolve(), Path(cwd))
