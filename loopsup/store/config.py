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

from loopsup.core.envelope import LANGUAGES
from loopsup.core.limits import MINUTE
from loopsup.core.watch import DEFAULT_SILENCE_MS
from loopsup.errors import ConfigError
from loopsup.store import config_values as values
from loopsup.store.config_values import Check
from loopsup.store.files import read_at_once, storage_error
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
    silence_timeout: int = DEFAULT_SILENCE_MS
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
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{os.fsdecode(path)} is not valid TOML: {error}") from error


def _expanded(name: str, env: Mapping[str, str]) -> str:
    return os.fsdecode(user_home(env) / name[2:]) if name.startswith("~/") else name


def read_text(path: Path, *, must_exist: bool = False) -> str:
    """What stands in the file. ConfigError where that can be no configuration; StorageError."""
    try:
        content = read_at_once(path, MAX_BYTES + 1)
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


class WrongValueError(ValueError):
    """A known key with a value it cannot have."""


SETTINGS: Mapping[str, Mapping[str, Check]] = {
    "": {"default_agent": values.text, "on_attention": values.hook},
    "agent": {"silence_timeout": values.duration_or_off},
    "envelope": {"language": values.one_of(*LANGUAGES)},
    "permissions": {
        "mode": values.one_of("ask", "allow", "deny"),
        "allow": values.texts,
        "deny": values.texts,
        "timeout": values.duration,
    },
    "ttsr": {
        "enabled": values.flag,
        "context_mode": values.one_of("discard", "keep"),
        "repeat_mode": values.one_of("once", "after-gap"),
        "repeat_gap": values.count,
        "folders": values.texts,
    },
    "continuity": {
        "enabled": values.flag,
        "max_resumes": values.count_or_unlimited,
        "stream_retries": values.count,
        "stream_delay_ms": values.count,
        "guidance": values.one_of("seed", "extended"),
    },
    "reaper": {"orphan_grace_s": values.count, "idle_ttl": values.duration, "session_cap": values.count},
}
AGENT_SETTINGS: Mapping[str, Check] = {"command": values.text, "env_file": values.text}


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
    settings = {**AGENT_SETTINGS, "env_file": lambda value: absolute(values.text(value))}
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
