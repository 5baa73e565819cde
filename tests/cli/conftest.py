"""A state home of its own for every test, and the command line run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loopsup.cli import app
from tests.cli.support import Result, Sessions

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own loopsup or configuration is seen."""
    marks = ("LOOPSUP_SESSION", "LOOPSUP_SOCKET", "LOOPSUP_TOKEN", "LOOPSUP_AGENT")
    for name in (*marks, "LOOPSUP_DEBUG", "LOOPSUP_CONFIG", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("NO_COLOR", "1")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "work")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("status", "--json")` -> exit code, standard output, standard error."""

    def run_line(*argv: str) -> Result:
        capsys.readouterr()
        code = app.run(argv)
        return Result(code, *capsys.readouterr())

    return run_line
