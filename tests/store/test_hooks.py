"""Which hook is called: L-136 wants every mistake shown, none raised."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loopsup.store.hooks import Hook, find_hook


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "hook"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home" / ".pi" / "agent").mkdir(parents=True)
    (tmp_path / "pi").mkdir()
    (tmp_path / "config.toml").write_text("")
    return {"HOME": str(tmp_path / "home"), "LOOPSUP_CONFIG": str(tmp_path / "config.toml")}


def loop_json(env: dict[str, str]) -> Path:
    return Path(env["HOME"]) / ".pi" / "agent" / "loop.json"


def test_none_is_configured(env: dict[str, str]) -> None:
    assert find_hook(env) == Hook()
    loop_json(env).write_text("{}")
    assert find_hook(env) == Hook()


def test_the_configuration_goes_before_loop_json(env: dict[str, str], script: str, tmp_path: Path) -> None:
    loop_json(env).write_text(json.dumps({"onAttention": script, "other": 1}))
    assert find_hook(env) == Hook(script, f"onAttention of {loop_json(env)}")
    elsewhere = {**env, "PI_CODING_AGENT_DIR": str(tmp_path / "pi")}
    assert find_hook(elsewhere) == Hook()
    tilde = {**env, "PI_CODING_AGENT_DIR": "~/.pi/agent"}
    assert find_hook(tilde) == find_hook(env)
    Path(env["LOOPSUP_CONFIG"]).write_text(f'on_attention = "{script}"')
    assert find_hook(env) == Hook(script, "on_attention of the configuration")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", None),
        (b"", "{path} is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b"[]", "{path} is not a JSON object"),
        (b'{"onAttention": 3}', "onAttention of {path} is not text"),
        (b'{"onAttention": "hook"}', "onAttention of {path} is 'hook', a relative path; give an absolute one"),
        (b'{"onAttention": ""}', "onAttention of {path} is '', a relative path; give an absolute one"),
        (b'{"onAttention": "/no/such"}', "onAttention of {path} is '/no/such', which is no file"),
        (b'{"onAttention": "/"}', "onAttention of {path} is '/', which is no file"),
        (b'{"onAttention": "/a\\u0000"}', "onAttention of {path} is '/a\\x00', which is no path"),
        (b'{"onAttention": "/\\ud800"}', None),
    ],
)  # fmt: skip
def test_every_mistake_is_shown(env: dict[str, str], content: bytes, problem: str | None) -> None:
    path = loop_json(env)
    path.write_bytes(content)
    hook = find_hook(env)
    assert hook.path is None
    assert hook.problem
    if problem is not None:
        assert hook.problem == problem.replace("{path}", str(path))


def test_a_file_that_cannot_be_executed_is_shown(env: dict[str, str], script: str) -> None:
    Path(script).chmod(0o644)
    loop_json(env).write_text(json.dumps({"onAttention": script}))
    assert find_hook(env).problem == (
        f"onAttention of {loop_json(env)} is '{script}', which is not executable; chmod +x it"
    )


def test_a_broken_configuration_is_shown_too(env: dict[str, str]) -> None:
    Path(env["LOOPSUP_CONFIG"]).write_text("on_attention = 3")
    assert find_hook(env) == Hook(
        problem=f"{env['LOOPSUP_CONFIG']}: 'on_attention' must be the absolute path of one executable file; "
        "for no hook, leave the line out"
    )
    loop_json(env).mkdir()
    Path(env["LOOPSUP_CONFIG"]).write_text("")
    assert find_hook(env) == Hook(problem=f"cannot read {loop_json(env)}: Is a directory")


def test_a_pipe_in_the_place_of_loop_json_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "loop.json")
    nowhere = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PI_CODING_AGENT_DIR": str(tmp_path)}
    assert "it is a pipe and no file" in (find_hook(nowhere).problem or "")
