"""Before a supervisor gives anything up for its successor, it sees that there can be one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.errors import RefusedError
from loopsup.shell.reload import check_program

pytestmark = pytest.mark.slow


def test_what_is_installed_can_serve() -> None:
    asyncio.run(check_program("demo"))


def test_a_program_of_which_only_the_supervisor_is_broken_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command but the supervisor itself works without this library."""
    (tmp_path / "psutil.py").write_text("raise ImportError('half an upgrade')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"half an upgrade.*nothing was changed"):
        asyncio.run(check_program("demo"))


def test_a_program_without_the_adapter_of_the_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "pi")
    with pytest.raises(RefusedError, match=r"there is no agent 'demo'.*nothing was changed"):
        asyncio.run(check_program("demo"))
