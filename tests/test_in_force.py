"""The rules a session starts with, from files to the matcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.core.rules import TEXT, ContextMode, Hits, RuleSettings
from loopsup.errors import AgentUnableError
from loopsup.in_force import rules_in_force, settings_now
from loopsup.matching import patterns


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".config" / "loopsup" / "rules").mkdir(parents=True)
    return {"HOME": str(tmp_path), "LOOPSUP_HOME": str(tmp_path / "state")}


def write(env: dict[str, str], name: str, trigger: str) -> None:
    folder = Path(env["HOME"], ".config", "loopsup", "rules")
    (folder / f"{name}.md").write_text(f"---\ntrigger: '{trigger}'\n---\nText.\n")


def test_a_bad_trigger_is_left_out_and_the_others_work(env: dict[str, str], tmp_path: Path) -> None:
    write(env, "bad", "(")
    write(env, "good", "foo")
    found = rules_in_force(tmp_path, env)
    assert [rule.name for rule in found.rules] == ["good"]
    assert found.matcher.delta(TEXT, "a foo") == Hits(("good",))
    assert found.notices == ("the stream rule bad: the trigger '(' is left out: missing ): (",)


def test_without_rules_no_engine_is_loaded(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise AgentUnableError("stream rules need packages")

    monkeypatch.setattr(patterns, "_engines", absent)
    found = rules_in_force(tmp_path, env)
    assert (found.rules, found.notices, found.matcher.idle) == ((), (), True)


def test_without_an_engine_a_session_has_no_rules_and_says_so(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise AgentUnableError("stream rules need packages")

    write(env, "good", "foo")
    monkeypatch.setattr(patterns, "_engines", absent)
    found = rules_in_force(tmp_path, env)
    assert (found.rules, found.notices) == ((), ("no stream rules are in force: stream rules need packages",))


def test_the_settings_are_read_anew(env: dict[str, str]) -> None:
    assert settings_now(env) == RuleSettings()
    config = Path(env["HOME"], ".config", "loopsup", "config.toml")
    config.write_text('[ttsr]\ncontext_mode = "keep"\n')
    assert settings_now(env) == RuleSettings(context=ContextMode.KEEP)
    config.write_text("[ttsr\n")
    assert settings_now(env) is None
