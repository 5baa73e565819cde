"""The configuration: `$LOOPSUP_CONFIG`, else `${XDG_CONFIG_HOME:-~/.config}/loopsup/config.toml`.

Strict: an unknown key or a wrong value is a ConfigError that names the file, the key and the near one. Without a
file everything has its default. `SETTINGS` is the whole list; the defaults are those of the dataclasses.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopsup.core import durations
from loopsup.core.limits import MINUTE
from loopsup.errors import ConfigError
from loopsup.store.files import storage_error
from loopsup.store.home import user_home

MAX_BYTES = 1024 * 1024
_AGENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`[agents.NAME]`. `env_file`: absolute; in the file it may start with ~ or with the file's own directory."""

    command: str | None = None
    env_file: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionConfig:
    """`[permissions]`. `timeout`: milliseconds."""

    mode: str = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    timeout: int = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class TtsrConfig:
    """`[ttsr]`: the stream rules."""

    enabled: bool = True
    context_mode: str = "discard"
    repeat_mode: str = "once"
    repeat_gap: int = 10
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContinuityConfig:
    """`[continuity]`: recovery of interrupted responses. None: the default of the feature itself.

    `max_resumes` is a number or "unlimited"; `stream_delay_ms` milliseconds; `guidance`: which words of a
    provider about its limits are understood, "seed" or "extended". `problem`: a value is wrong, in a sentence;
    then nothing is recovered, because a limit nobody can read is no limit to spend under.
    """

    enabled: bool | None = None
    max_resumes: int | str | None = None
    stream_retries: int | None = None
    stream_delay_ms: int | None = None
    guidance: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ReaperConfig:
    """`[reaper]`. `orphan_grace_s` seconds, `idle_ttl` milliseconds; None: the default of the feature itself."""

    orphan_grace_s: int | None = None
    idle_ttl: int | None = None
    session_cap: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `silence_timeout` in milliseconds, 0: off. `language`: of the envelope."""

    default_agent: str | None = None
    on_attention: str | None = None
    silence_timeout: int = 15 * MINUTE
    language: str = "en"
    agents: Mapping[str, AgentConfig] = field(default_factory=dict)
    permissions: PermissionConfig = PermissionConfig()
    ttsr: TtsrConfig = TtsrConfig()
    continuity: ContinuityConfig = ContinuityConfig()
    reaper: ReaperConfig = ReaperConfig()

    def agent(self, name: str) -> AgentConfig:
        """What is configured for the agent `name`."""
        return self.agents.get(name, AgentConfig())


def config_path(env: Mapping[str, str] = os.environ) -> Path:
    """Where the configuration is looked for."""
    named = env.get("LOOPSUP_CONFIG")
    if named:
        return Path(named)
    base = env.get("XDG_CONFIG_HOME")
    return (
        (Path(base) if base and Path(base).is_absolute() else user_home(env) / ".config") / "loopsup" / "config.toml"
    )


def load_config(env: Mapping[str, str] = os.environ) -> Config:
    """The configuration in force. ConfigError; StorageError if the file cannot be read."""
    path, table = config_path(env), load_table(env)
    try:
        return _config(table, lambda name: os.path.normpath(path.parent.absolute() / _expanded(name, env)))
    except ValueError as error:
        raise ConfigError(f"{os.fsdecode(path)}: {error}") from error


def load_table(env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What stands in the file, empty without one. ConfigError where it is no TOML; StorageError."""
    path = config_path(env)
    try:
        return tomllib.loads(read_text(path, must_exist=bool(env.get("LOOPSUP_CONFIG"))))
    except ValueError as error:
        raise ConfigError(f"{os.fsdecode(path)} is not valid TOML: {error}") from error


def _expanded(name: str, env: Mapping[str, str]) -> str:
    return os.fsdecode(user_home(env) / name[2:]) if name.startswith("~/") else name


def read_text(path: Path, *, must_exist: bool = False) -> str:
    """What stands in the file. ConfigError where that can be no configuration; StorageError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{os.fsdecode(path)} is larger than {MAX_BYTES} bytes, so it is not a configuration")
        return content.decode("utf-8")
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(f"LOOPSUP_CONFIG names {os.fsdecode(path)}, which does not exist") from None
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{os.fsdecode(path)} is not valid TOML: it is not UTF-8 text") from error
    except OSError as error:
        raise storage_error("cannot read", path, error) from error


# ---- the settings -----------------------------------------------------------------------------------

Check = Callable[[Any], Any]  # a TOML value in, the value kept out; ValueError: what it should be


class WrongValueError(ValueError):
    """A known key with a value it cannot have."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _hook(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the absolute path of one executable file; for no hook, leave the line out")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError('a list of texts, like ["bash", "write"]')
    return tuple(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 2**53:
        raise ValueError("a whole number, 0 or more")
    return value


def _count_or_unlimited(value: Any) -> int | str:
    if value == "unlimited":
        return "unlimited"
    try:
        return _count(value)
    except ValueError:
        raise ValueError('a whole number, 0 or more, or "unlimited"') from None


def _duration(value: Any) -> int:
    try:
        return durations.parse(value) if isinstance(value, str) else durations.parse("")
    except ValueError:
        raise ValueError('a duration like "90s", "10m" or "1h30m"') from None


def _duration_or_off(value: Any) -> int:
    if value in ("0", "0s") or (type(value) is int and value == 0):
        return 0
    try:
        return _duration(value)
    except ValueError:
        raise ValueError('a duration like "15m", or 0 for off') from None


def _one_of(*words: str) -> Check:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(" or ".join(f'"{word}"' for word in words))
        return str(value)

    return check


SETTINGS: Mapping[str, Mapping[str, Check]] = {
    "": {"default_agent": _text, "on_attention": _hook},
    "agent": {"silence_timeout": _duration_or_off},
    "envelope": {"language": _one_of("en", "pt")},
    "permissions": {
        "mode": _one_of("ask", "allow", "deny"),
        "allow": _texts,
        "deny": _texts,
        "timeout": _duration,
    },
    "ttsr": {
        "enabled": _flag,
        "context_mode": _one_of("discard", "keep"),
        "repeat_mode": _one_of("once", "after-gap"),
        "repeat_gap": _count,
        "folders": _texts,
    },
    "continuity": {
        "enabled": _flag,
        "max_resumes": _count_or_unlimited,
        "stream_retries": _count,
        "stream_delay_ms": _count,
        "guidance": _one_of("seed", "extended"),
    },
    "reaper": {"orphan_grace_s": _count, "idle_ttl": _duration, "session_cap": _count},
}
AGENT_SETTINGS: Mapping[str, Check] = {"command": _text, "env_file": _text}


def _config(table: dict[str, Any], absolute: Callable[[str], str]) -> Config:
    sections = [name for name in SETTINGS if name] + ["agents"]
    top = {key: value for key, value in table.items() if key not in sections}
    read = {"": _section("", top, SETTINGS[""], near=[*SETTINGS[""], *sections])}
    for name in SETTINGS:
        if name and name != "continuity":
            read[name] = _section(name, table.get(name, {}), SETTINGS[name])
    return Config(
        **read[""],
        **read["agent"],
        **read["envelope"],
        agents=_agents(table.get("agents", {}), absolute),
        permissions=PermissionConfig(**read["permissions"]),
        ttsr=TtsrConfig(**read["ttsr"]),
        continuity=_continuity(table.get("continuity", {})),
        reaper=ReaperConfig(**read["reaper"]),
    )


def _continuity(table: Any) -> ContinuityConfig:
    try:
        return ContinuityConfig(**_section("continuity", table, SETTINGS["continuity"]))
    except WrongValueError as error:
        return ContinuityConfig(enabled=False, problem=f"{error}; interrupted responses are not recovered")


def _agents(table: Any, absolute: Callable[[str], str]) -> dict[str, AgentConfig]:
    if not isinstance(table, dict):
        raise ValueError("'agents' must be tables like [agents.pi]")
    for name in table:
        if not _AGENT_NAME.fullmatch(name):
            raise ValueError(f"{name!a} in [agents] is no name of an agent")
    settings = {**AGENT_SETTINGS, "env_file": lambda value: absolute(_text(value))}
    return {name: AgentConfig(**_section(f"agents.{name}", entry, settings)) for name, entry in table.items()}


def _section(name: str, table: Any, known: Mapping[str, Check], near: list[str] | None = None) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"'{name}' must be a table, written [{name}]")
    kept = {}
    for key, value in table.items():
        full = f"{name}.{key}" if name else key
        if key not in known:
            raise ValueError(_unknown(full, key, near or list(known)))
        try:
            kept[key] = known[key](value)
        except ValueError as error:
            raise WrongValueError(f"'{full}' must be {error}") from None
    return kept


def _unknown(full: str, key: str, known: list[str]) -> str:
    import difflib  # only on an error: it costs every command its import

    close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    prefix = full.removesuffix(key)
    return f"unknown key {full!a}; did you mean '{prefix}{close[0]}'?" if close else f"unknown key {full!a}"
