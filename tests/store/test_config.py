"""The configuration: every documented key, and one sentence for everything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopsup.errors import ConfigError, StorageError
from loopsup.store.config import (
    AGENT_SETTINGS,
    SETTINGS,
    AgentConfig,
    Config,
    ContinuityConfig,
    PermissionConfig,
    ReaperConfig,
    TtsrConfig,
    config_path,
    load_config,
)

WHOLE = """
default_agent = "pi"
on_attention = "/opt/hook"
[agents.pi]
command = "/opt/pi"
env_file = "~/pi.env"
[agents.demo]
env_file = "demo.env"
[agent]
silence_timeout = "20m"
[envelope]
language = "pt"
[permissions]
mode = "deny"
allow = ["read"]
deny = ["bash", "write"]
timeout = "90s"
[ttsr]
enabled = false
context_mode = "keep"
repeat_mode = "after-gap"
repeat_gap = 3
folders = ["rules"]
[continuity]
enabled = true
max_resumes = "unlimited"
stream_retries = 4
stream_delay_ms = 250
guidance = "extended"
[reaper]
orphan_grace_s = 60
idle_ttl = "1h"
session_cap = 8
"""


A_DURATION = 'a duration like "90s", "10m" or "1h30m"'
OR_OFF = 'a duration like "15m", or 0 for off'
OR_UNLIMITED = 'a whole number, 0 or more, or "unlimited"'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"LOOPSUP_CONFIG": str(tmp_path / "config.toml"), "HOME": "/home/u"}


def write(env: dict[str, str], text: str) -> Path:
    path = Path(env["LOOPSUP_CONFIG"])
    path.write_text(text)
    return path


def test_every_documented_key_is_read(env: dict[str, str], tmp_path: Path) -> None:
    write(env, WHOLE)
    config = load_config(env)
    assert config == Config(
        default_agent="pi",
        on_attention="/opt/hook",
        silence_timeout=1_200_000,
        language="pt",
        agents={
            "pi": AgentConfig("/opt/pi", "/home/u/pi.env"),
            "demo": AgentConfig(None, str(tmp_path / "demo.env")),
        },
        permissions=PermissionConfig("deny", ("read",), ("bash", "write"), 90_000),
        ttsr=TtsrConfig(False, "keep", "after-gap", 3, ("rules",)),
        continuity=ContinuityConfig(True, "unlimited", 4, 250, "extended"),
        reaper=ReaperConfig(60, 3_600_000, 8),
    )
    assert config.agent("pi").command == "/opt/pi"
    assert config.agent("copilot") == AgentConfig()
    assert all(f"{key} =" in WHOLE for section in (*SETTINGS.values(), AGENT_SETTINGS) for key in section)


@pytest.mark.parametrize("text", ["", "# nothing\n", "[ttsr]\n[agents]\n"])
def test_nothing_said_is_the_default(env: dict[str, str], text: str) -> None:
    write(env, text)
    assert load_config(env) == Config()
    assert load_config({"HOME": "/nonexistent"}) == Config()


@pytest.mark.parametrize("off", ["0", '"0"', '"0s"'])
def test_the_watchdog_can_be_off(env: dict[str, str], off: str) -> None:
    write(env, f"[agent]\nsilence_timeout = {off}\n")
    assert load_config(env).silence_timeout == 0


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"LOOPSUP_CONFIG": "/a.toml", "XDG_CONFIG_HOME": "/b", "HOME": "/c"}, "/a.toml"),
        ({"XDG_CONFIG_HOME": "/b", "HOME": "/c"}, "/b/loopsup/config.toml"),
        ({"XDG_CONFIG_HOME": "b", "HOME": "/c"}, "/c/.config/loopsup/config.toml"),
        ({"HOME": "/c"}, "/c/.config/loopsup/config.toml"),
    ],
)
def test_where_it_is_looked_for(env: dict[str, str], path: str) -> None:
    assert config_path(env) == Path(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('defalt_agent = "pi"', "unknown key 'defalt_agent'; did you mean 'default_agent'?"),
        ('[permision]\nmode = "ask"', "unknown key 'permision'; did you mean 'permissions'?"),
        ("[permissions]\ntimeot = 1", "unknown key 'permissions.timeot'; did you mean 'permissions.timeout'?"),
        ('[agents.pi]\ncomand = "x"', "unknown key 'agents.pi.comand'; did you mean 'agents.pi.command'?"),
        ("[envelope]\nzzz = 1", "unknown key 'envelope.zzz'; did you mean 'envelope.language'?"),
        ("default_agent = 3", "'default_agent' must be text"),
        ('on_attention = ""', "'on_attention' must be the absolute path of one executable file; "
            "for no hook, leave the line out"),
        ("permissions = 3", "'permissions' must be a table, written [permissions]"),
        ("agents = 3", "'agents' must be tables like [agents.pi]"),
        ('[agents]\npi = "x"', "'agents.pi' must be a table, written [agents.pi]"),
        ('[agents."a b"]', "'a b' in [agents] is no name of an agent"),
        ('[permissions]\nmode = "yes"', '\'permissions.mode\' must be "ask" or "allow" or "deny"'),
        ("[permissions]\nmode = []", '\'permissions.mode\' must be "ask" or "allow" or "deny"'),
        ('[permissions]\nallow = "bash"', "'permissions.allow' must be a list of texts, like [\"bash\", \"write\"]"),
        ("[permissions]\ndeny = [1]", "'permissions.deny' must be a list of texts, like [\"bash\", \"write\"]"),
        ("[permissions]\ntimeout = 5", "'permissions.timeout' must be " + A_DURATION),
        ('[permissions]\ntimeout = "0s"', "'permissions.timeout' must be " + A_DURATION),
        ("[agent]\nsilence_timeout = false", "'agent.silence_timeout' must be " + OR_OFF),
        ('[agent]\nsilence_timeout = "soon"', "'agent.silence_timeout' must be " + OR_OFF),
        ('[envelope]\nlanguage = "de"', '\'envelope.language\' must be "en" or "pt"'),
        ("[ttsr]\nenabled = 1", "'ttsr.enabled' must be true or false"),
        ("[ttsr]\nrepeat_gap = -1", "'ttsr.repeat_gap' must be a whole number, 0 or more"),
        ("[ttsr]\nrepeat_gap = true", "'ttsr.repeat_gap' must be a whole number, 0 or more"),
        ("[continuity]\nmax_resume = 1", "unknown key 'continuity.max_resume'; did you mean 'continuity.max_resumes'?"),  # noqa: E501
        ("[reaper]\nidle_ttl = 5", "'reaper.idle_ttl' must be " + A_DURATION),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(env: dict[str, str], text: str, error: str) -> None:
    path = write(env, text)
    with pytest.raises(ConfigError) as caught:
        load_config(env)
    assert str(caught.value) == f"{path}: {error}"


@pytest.mark.parametrize(
    ("setting", "must_be"),
    [
        ("max_resumes = 1.5", "'continuity.max_resumes' must be " + OR_UNLIMITED),
        ('max_resumes = " 3"', "'continuity.max_resumes' must be " + OR_UNLIMITED),
        ("max_resumes = -1", "'continuity.max_resumes' must be " + OR_UNLIMITED),
        ("max_resumes = nan", "'continuity.max_resumes' must be " + OR_UNLIMITED),
        ("stream_retries = 9007199254740993", "'continuity.stream_retries' must be a whole number, 0 or more"),
        ('stream_delay_ms = ""', "'continuity.stream_delay_ms' must be a whole number, 0 or more"),
        ('enabled = "yes"', "'continuity.enabled' must be true or false"),
    ],
)
def test_a_limit_nobody_can_read_switches_recovery_off(env: dict[str, str], setting: str, must_be: str) -> None:
    """C-06: it is no limit to spend under. Everything else of the configuration stands."""
    write(env, f'default_agent = "pi"\n[continuity]\nguidance = "extended"\n{setting}')
    problem = f"{must_be}; interrupted responses are not recovered"
    assert load_config(env) == Config("pi", continuity=ContinuityConfig(enabled=False, problem=problem))


def test_a_file_that_is_no_toml_is_named(env: dict[str, str]) -> None:
    path = write(env, "a = ")
    with pytest.raises(ConfigError, match=f"{path} is not valid TOML: Invalid value"):
        load_config(env)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        load_config(env)
    path.write_bytes(b"#" * 1024 * 1025)
    with pytest.raises(ConfigError, match="is larger than"):
        load_config(env)


def test_a_named_file_must_be_there_and_readable(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"LOOPSUP_CONFIG names .*/config\.toml, which does not exist"):
        load_config(env)
    Path(env["LOOPSUP_CONFIG"]).mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        load_config(env)
    assert "LOOPSUP_CONFIG" not in os.environ
