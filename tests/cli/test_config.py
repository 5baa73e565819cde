"""`loopsup config`: where the configuration is, and all that is in force."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from loopsup.cli import config
from loopsup.store.config import SETTINGS, Config, load_config
from tests.cli.conftest import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "loopsup" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_where_it_is(run: Run, file: Path) -> None:
    assert run("config", "path").out == f"{file}\n"
    assert run("config", "path", "--json").json == {"version": 1, "path": str(file), "exists": False}
    file.write_text("")
    assert run("config", "path", "--json").json["exists"] is True


def test_what_is_shown_without_a_file_are_the_defaults(run: Run, file: Path) -> None:
    shown = run("config", "show").out
    assert shown.startswith(f"# {file} (not there, so all of this are defaults)\n")
    lines = [line.removeprefix("# ") for line in shown.split("\n")[2:] if not line.endswith("is not set")]
    file.write_text("\n".join(lines))
    given = load_config()
    file.unlink()
    assert run("config", "show").out == shown
    assert given.continuity.problem is None
    plain = Config(continuity=given.continuity, reaper=given.reaper)
    assert given == plain, "the defaults shown are those that hold"
    names = {f"{section}.{key}".strip(".") for section, keys in SETTINGS.items() for key in keys}
    settings = run("config", "show", "--json").json["settings"]
    assert settings.keys() == names
    assert all(setting["default"] for setting in settings.values())


def test_what_the_file_says_is_told_from_the_defaults(run: Run, file: Path) -> None:
    permissions = '[permissions]\nmode = "deny"\nallow = ["é", "bash"]\n'
    said = 'on_attention = "/x/\\"hook\\\\"\n' + permissions + '[agents.pi]\ncommand = "pi2"\n'
    file.write_text(said)
    shown = run("config", "show").out
    assert tomllib.loads(shown) == tomllib.loads(said) | {
        section: {} for section in ("agent", "envelope", "ttsr", "continuity", "reaper")
    }
    assert '# timeout = "5m"\n' in shown
    assert "# env_file is not set\n" in shown
    settings = run("config", "show", "--json").json["settings"]
    assert settings["permissions.mode"] == {"value": "deny", "default": False}
    assert settings["permissions.timeout"] == {"value": "5m", "default": True}
    assert settings["agents.pi.env_file"] == {"value": None, "default": True}


def test_the_defaults_of_the_features_are_those_shown() -> None:
    settings = config.in_force()
    assert settings["continuity.max_resumes"] == (16, True)
    assert settings["continuity.stream_retries"] == (12, True)
    assert settings["continuity.stream_delay_ms"] == (5000, True)
    assert settings["reaper.orphan_grace_s"] == (20, True)
    assert settings["reaper.idle_ttl"] == ("6h", True)


@pytest.mark.parametrize("text", ["typo = 1", "= =", 'agents = {pi = "x"}'])
def test_a_wrong_file_is_told(run: Run, file: Path, text: str) -> None:
    file.write_text(text)
    result = run("config", "show")
    assert (result.code, result.out) == (2, "")
    assert str(file) in result.err
    assert run("config", "path").code == 0


def test_what_it_cannot_do(run: Run) -> None:
    assert run("config", "edit").code == 2
    assert run("config").code == 2


@pytest.mark.parametrize("wrong", ["1979-05-27", "nan", "0x" + "f" * 5000])
def test_a_wrong_value_that_json_has_not_is_shown_as_one(run: Run, file: Path, wrong: str) -> None:
    file.write_text(f"[continuity]\nmax_resumes = {wrong}\n")
    assert 'max_resumes = "a wrong value (' in run("config", "show").out
    said = run("config", "show", "--json").json["settings"]["continuity.max_resumes"]
    assert (str(said["value"]).startswith("a wrong value ("), said["default"]) == (True, False)


def test_a_pipe_is_not_waited_for(run: Run, file: Path) -> None:
    os.mkfifo(file)
    result = run("config", "show")
    assert (result.code, "it is a pipe and no file" in result.err) == (1, True)


def test_nested_deeper_than_can_be_read(run: Run, file: Path) -> None:
    file.write_text("x = " + "[" * 20_000)
    result = run("config", "show")
    assert (result.code, "is not valid TOML" in result.err) == (2, True)
