"""Pi's session files: find the one a person means. Only the first line of a file is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from loopsup.errors import NotFoundError, UsageError
from loopsup.ports import Conversation

MAX_HEADER = 64 * 1024  # the header is ~200 bytes; a longer first line is no header
SHOWN = 5  # matches named in an error


def locate(ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
    """By id, unique id prefix, or path."""
    if not ref:
        raise UsageError("an empty reference names no Pi session; give its id or its file")
    if "/" in ref or ref.endswith(".jsonl"):
        return _by_path(cwd / Path(ref).expanduser())
    root = sessions_dir(cwd, env)
    found = [(_file_id(path), path) for path in _files(root)]
    matches = [path for name, path in found if name == ref] or [path for name, path in found if name.startswith(ref)]
    conversations = [conversation for path in matches if (conversation := _read(path)) is not None]
    if not conversations:
        raise NotFoundError(f"no Pi session with an id starting with {ref!r} below {root}; `pi --resume` lists them")
    if len(conversations) > 1:
        names = ", ".join(conversation.id for conversation in conversations[:SHOWN])
        more = "…" if len(conversations) > SHOWN else ""
        raise UsageError(
            f"{ref!r} fits {len(conversations)} Pi sessions ({names}{more}); give more of the id, or the file"
        )
    return conversations[0]


def sessions_dir(cwd: Path, env: Mapping[str, str]) -> Path:
    """Where Pi keeps its sessions, in this environment."""
    home = Path(env.get("HOME") or Path.home())
    if given := env.get("PI_CODING_AGENT_SESSION_DIR"):
        return cwd / _expand(given, home)
    agent = env.get("PI_CODING_AGENT_DIR")
    return (cwd / _expand(agent, home) if agent else home / ".pi" / "agent") / "sessions"


def _expand(text: str, home: Path) -> Path:
    return home / text[2:] if text.startswith("~/") else Path(text)


def _by_path(path: Path) -> Conversation:
    if not path.is_file():
        raise NotFoundError(f"there is no Pi session file {path}")
    conversation = _read(path)
    if conversation is None:
        raise UsageError(f"{path} is not a Pi session file (its first line is no session header)")
    return conversation


def _files(root: Path) -> Iterator[Path]:
    """One directory for each working directory; flat where the place was given."""
    yield from sorted(root.glob("*.jsonl"))
    yield from sorted(root.glob("*/*.jsonl"))


def _file_id(path: Path) -> str:
    """`<instant>_<id>.jsonl`; the instant has no underscore, an id may."""
    return path.stem.partition("_")[2]


def _read(path: Path) -> Conversation | None:
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(MAX_HEADER))
    except (OSError, ValueError):
        return None
    if not isinstance(header, dict) or header.get("type") != "session":
        return None
    identity, cwd = header.get("id"), header.get("cwd")
    if not isinstance(identity, str) or not isinstance(cwd, str):
        return None
    return Conversation(identity, path.resolve(), Path(cwd))
