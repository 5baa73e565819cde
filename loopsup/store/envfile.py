"""`env_file` of an agent: `KEY=VALUE` lines read at each start of the agent, never stored.

# a comment; blank lines are allowed
ANTHROPIC_API_KEY=sk-...
export NAME="with spaces"        quotes ('…' or "…") are taken off; nothing is expanded
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from loopsup.errors import ConfigError
from loopsup.store.files import storage_error

MAX_BYTES = 1024 * 1024
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_env_file(path: Path) -> dict[str, str]:
    """The variables. ConfigError names the line (never its content: it may be a secret), StorageError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"the env_file {os.fsdecode(path)} does not exist") from None
    except OSError as error:
        raise storage_error("cannot read the env_file", path, error) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"the env_file {os.fsdecode(path)} is larger than {MAX_BYTES} bytes")
    found: dict[str, str] = {}
    for number, raw in enumerate(content.split(b"\n"), start=1):
        try:
            found.update(_line(raw))
        except ValueError as error:
            raise ConfigError(f"the env_file {os.fsdecode(path)}, line {number}: {error}") from error
    return found


def _line(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if not text or text.startswith("#"):
        return {}
    key, equals, value = text.removeprefix("export ").partition("=")
    if not equals or not _KEY.fullmatch(key.strip()):
        raise ValueError("it is not KEY=VALUE")
    value = value.strip()
    if value[:1] in ("'", '"'):
        if len(value) < 2 or value[-1] != value[0]:
            raise ValueError("the quote is not closed")
        value = value[1:-1]
    if "\0" in value:
        raise ValueError("it has a NUL character")
    return {key.strip(): value}
