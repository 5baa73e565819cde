"""The verbs that only read stay cheap to start, and print on whatever terminal there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.reading import Made

HEAVY = ("asyncio", "rich", "psutil", "pydantic")
READING = (
    ["logs"],
    ["history"],
    ["ls"],
    ["agents"],
    ["status"],
    ["attach"],
    ["logs", "--json"],
    ["history", "--json"],
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    made = Made("proj", tmp_path).start(objective="ação 日本 \ud83d\ude00").decide("complete", 1000)
    return made.event("assistant.message", {"turnId": "t", "text": "olá 日本\x1b[2J", "toolRequests": []})


def run(code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    paths = os.pathsep.join(sys.path)
    full = {**os.environ, "PYTHONPATH": paths, "LOOPSUP_ADAPTERS": "", "COLUMNS": "60", **env}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=full, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_nothing_heavy_is_imported(session: Made, tmp_path: Path, argv: list[str]) -> None:
    code = (
        "import sys\nfrom loopsup.cli import app\n"
        f"code = app.run({argv!r})\nheavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print('heavy', heavy, 'code', code, file=sys.stderr)"
    )
    done = run(code, tmp_path)
    expected = 5 if argv == ["attach"] else 0
    assert done.stderr.decode().endswith(f"heavy [] code {expected}\n")


@pytest.mark.slow
@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_an_ascii_terminal_is_no_reason_to_fail(session: Made, tmp_path: Path, argv: list[str]) -> None:
    done = run(
        f"from loopsup.cli import app\nraise SystemExit(app.run({argv!r}))", tmp_path, PYTHONIOENCODING="ascii"
    )
    assert done.returncode == (5 if argv == ["attach"] else 0), done.stderr
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
