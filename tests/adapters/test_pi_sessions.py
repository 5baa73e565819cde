"""Finding the Pi session a person means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopsup.errors import NotFoundError, UsageError
from loopsup.ports import Conversation
from loopsup_pi.sessions import locate, sessions_dir


def session(folder: Path, identity: str, cwd: str = "/w", instant: str = "2026-11-30T11-31-49-893Z") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{instant}_{identity}.jsonl"
    path.write_text(json.dumps({"type": "session", "version": 3, "id": identity, "cwd": cwd}) + "\nnot read\n")
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PI_CODING_AGENT_DIR": str(tmp_path / "agent")}


def test_by_id_prefix_and_path(tmp_path: Path, env: dict[str, str]) -> None:
    path = session(tmp_path / "agent" / "sessions" / "--w--", "abc-123")
    session(tmp_path / "agent" / "sessions" / "--w--", "xyz")
    expected = Conversation("abc-123", path, Path("/w"))
    assert locate("abc-123", tmp_path, env) == expected
    assert locate("abc", tmp_path, env) == expected
    assert locate(str(path), tmp_path, env) == expected
    assert locate(path.name, path.parent, env) == expected


def test_an_exact_id_wins_over_longer_ones(tmp_path: Path, env: dict[str, str]) -> None:
    short = session(tmp_path / "agent" / "sessions" / "--w--", "loop")
    session(tmp_path / "agent" / "sessions" / "--w--", "loop_2")
    assert locate("loop", tmp_path, env) == Conversation("loop", short, Path("/w"))


def test_several_matches_are_named(tmp_path: Path, env: dict[str, str]) -> None:
    for name in ("abc-1", "abc-2"):
        session(tmp_path / "agent" / "sessions" / "--w--", name)
    with pytest.raises(UsageError, match=r"'abc' fits 2 Pi sessions \(abc-1, abc-2\); give more of the id"):
        locate("abc", tmp_path, env)


def test_none_is_said_with_the_place(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(NotFoundError, match=f"no Pi session .*'nope' below {tmp_path}/agent/sessions"):
        locate("nope", tmp_path, env)
    with pytest.raises(NotFoundError, match=f"there is no Pi session file {tmp_path}/x.jsonl"):
        locate("./x.jsonl", tmp_path, env)
    with pytest.raises(UsageError, match="empty reference"):
        locate("", tmp_path, env)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"type":"other"}', '{"type":"session","id":3}', "x" * 200_000])
def test_another_file_is_no_session(tmp_path: Path, env: dict[str, str], content: str) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(UsageError, match="is not a Pi session file"):
        locate("./x.jsonl", tmp_path, env)


def test_the_place_follows_the_environment(tmp_path: Path) -> None:
    home = {"HOME": "/h"}
    assert sessions_dir(tmp_path, home) == Path("/h/.pi/agent/sessions")
    assert sessions_dir(tmp_path, {**home, "PI_CODING_AGENT_DIR": "~/a"}) == Path("/h/a/sessions")
    assert sessions_dir(tmp_path, {**home, "PI_CODING_AGENT_SESSION_DIR": "flat"}) == tmp_path / "flat"


def test_a_flat_place_is_searched(tmp_path: Path) -> None:
    path = session(tmp_path / "flat", "abc")
    env = {"HOME": "/h", "PI_CODING_AGENT_SESSION_DIR": "flat"}
    assert locate("abc", tmp_path, env) == Conversation("abc", path, Path("/w"))
