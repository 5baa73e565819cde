"""Changing one line of the configuration and nothing else: comments and order are the person's.

Rules: the result is read again before it is written, and must differ in that key alone; what cannot be changed so is
left as it is, with the line to put in by hand.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from loopsup.errors import ConfigError, UsageError
from loopsup.store.config import config_path, load_config, read_text
from loopsup.store.files import storage_error, write_atomic

KEY = "on_attention"
_LINE = re.compile(rf"\s*{KEY}\s*=")
_VALUE = re.compile(rf"""\s*{KEY}\s*=\s*(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')(?P<rest>[ \t]*(?:#[^\r\n]*)?)\r?\n?""")
_TABLE = re.compile(r"\s*\[")
NEW_MODE = 0o600  # as write_atomic makes it


def check_place(env: Mapping[str, str] = os.environ) -> Path:
    """The configuration's path, where it can be changed. ConfigError, StorageError.

    What is no file is left alone: root would replace /dev/null itself.
    """
    load_config(env)  # one that is wrong already is not ours to repair
    path = config_path(env)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{os.fsdecode(path)} is no file, so no hook can be named in it")
    return path


def set_hook(hook: Path | None, env: Mapping[str, str] = os.environ) -> Path:
    """Name `hook` as the attention hook (None: name none); the file that was written. ConfigError, StorageError."""
    path = check_place(env)
    before = read_text(path)
    after = with_hook(before, None if hook is None else os.fspath(hook), os.fsdecode(path))
    if after == before:
        return path
    target = Path(os.path.realpath(path))  # a link into somebody's dotfiles stays one
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else NEW_MODE
        write_atomic(target, after.encode("utf-8"))
        target.chmod(mode)
    except OSError as error:
        raise storage_error("cannot write", target, error) from error
    return path


def with_hook(text: str, hook: str | None, shown: str) -> str:
    """`text` with that hook; `shown` names the file in an error."""
    try:
        line = "" if hook is None else f"{KEY} = {json.dumps(hook, ensure_ascii=False)}\n"
        line.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{hook!a} is no UTF-8 text, so no configuration can name it; rename the file") from None
    lines = text.splitlines(keepends=True)
    top = next((at for at, each in enumerate(lines) if _TABLE.match(each)), len(lines))
    where = [at for at, each in enumerate(lines[:top]) if _LINE.match(each)]
    if where:
        lines[where[0]] = line and _as_before(lines[where[0]], line)
    else:
        lines.insert(0, line)
    after = "".join(lines)
    wanted = {key: value for key, value in tomllib.loads(text).items() if key != KEY}
    if hook is not None:
        wanted[KEY] = hook
    try:
        done = tomllib.loads(after) == wanted
    except ValueError:
        done = False
    if not done:
        what = f"put this line at its top: {line.strip()}" if hook is not None else f"take {KEY} out of it"
        raise ConfigError(f"{shown} is written in a way that is not changed safely; {what}")
    return after


def _as_before(before: str, line: str) -> str:
    """`line` with the comment and the line end of the one it replaces."""
    found = _VALUE.fullmatch(before)
    rest = found["rest"].rstrip() if found else ""
    return line.removesuffix("\n") + rest + ("\r\n" if before.endswith("\r\n") else "\n")
