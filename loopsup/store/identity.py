"""`session.toml`: what a session is. Written whole and atomically (0600); never holds the environment.

`session_id` is loopsup's. `agent_session_id` and `agent_file` are the agent's and stay empty until it has told
them. `command` is the configured executable (None: the usual one), `args` the command line as given after `--`.
`continuity` is what `start` and `update` said about the recovery of interrupted responses, `park` whether the agent
is closed between wakes that are far apart, `enabled` whether a unit of the machine opens the session again after
a reboot.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from loopsup.core.overrides import NOTHING_SAID, Overrides
from loopsup.errors import StorageError, UsageError
from loopsup.store.files import read_private, write_atomic
from loopsup.wire.times import instant, parse_instant

NAME = "session.toml"
MAX_BYTES = 4 * 1024 * 1024  # the kernel takes command lines of 2 MiB at most; TOML escapes add some


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of session.toml. `created`: wall ms."""

    name: str
    id: str
    agent: str
    cwd: str
    socket: str
    created: int
    command: str | None = None
    args: tuple[str, ...] = ()
    agent_session_id: str | None = None
    agent_file: str | None = None
    allow_all: bool = False
    continuity: Overrides = NOTHING_SAID
    park: bool = False
    enabled: bool = False


def save_identity(folder: Path, identity: Identity) -> None:
    """Write it. UsageError for text no file of UTF-8 can hold, StorageError."""
    table: dict[str, Any] = {
        "name": identity.name,
        "id": identity.id,
        "agent": identity.agent,
        "cwd": identity.cwd,
        "socket": identity.socket,
        "created": instant(identity.created),
        "command": identity.command,
        "args": list(identity.args),
        "agent_session_id": identity.agent_session_id,
        "agent_file": identity.agent_file,
        "allow_all": identity.allow_all,
        "park": identity.park,
        "enabled": identity.enabled or None,
        "continuity": _given(asdict(identity.continuity)) or None,
    }
    given = _given(table)
    try:
        content = tomli_w.dumps(given).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            "the directory, the agent's file or an argument is not valid UTF-8, which loopsup cannot keep; rename it"
        ) from error
    write_atomic(folder / NAME, content)


def load_identity(folder: Path) -> Identity:
    """Read it. StorageError names the file and what is wrong."""
    path = folder / NAME
    try:
        table = tomllib.loads(read_private(path, MAX_BYTES).decode("utf-8"))
        return _identity(table)
    except FileNotFoundError:
        raise StorageError(f"{os.fsdecode(path)} is missing, so this is no session of loopsup") from None
    except ValueError as error:  # not UTF-8, not TOML, a wrong value
        raise StorageError(f"{os.fsdecode(path)} is damaged: {error}") from error


def _identity(table: dict[str, Any]) -> Identity:
    args = _value(table, "args", list)
    if not all(isinstance(arg, str) for arg in args):
        raise ValueError("args has something that is not text")
    return Identity(
        name=_value(table, "name", str),
        id=_value(table, "id", str),
        agent=_value(table, "agent", str),
        cwd=_value(table, "cwd", str),
        socket=_value(table, "socket", str),
        created=parse_instant(_value(table, "created", str)),
        command=_optional(table, "command"),
        args=tuple(args),
        agent_session_id=_optional(table, "agent_session_id"),
        agent_file=_optional(table, "agent_file"),
        allow_all=_value(table, "allow_all", bool),
        continuity=_overrides(table.get("continuity", {})),
        enabled=table.get("enabled") is True,
        park="park" in table and _value(table, "park", bool),
    )


def _given(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _overrides(table: Any) -> Overrides:
    if not isinstance(table, dict):
        raise ValueError("continuity is of the wrong type")
    most = table.get("max_resumes")
    return Overrides(
        enabled=None if "enabled" not in table else _value(table, "enabled", bool),
        max_resumes=most if most in (None, "unlimited") else _value(table, "max_resumes", int),
        stream_delay_ms=None if "stream_delay_ms" not in table else _value(table, "stream_delay_ms", int),
    )


def _value(table: dict[str, Any], key: str, kind: type) -> Any:
    if type(table.get(key)) is not kind:
        raise ValueError(f"{key} is missing or of the wrong type")
    return table[key]


def _optional(table: dict[str, Any], key: str) -> str | None:
    return None if key not in table else _value(table, key, str)
