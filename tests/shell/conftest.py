"""Nothing of the machine's own configuration, hooks or sessions is seen."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOPSUP_CONFIG", "LOOPSUP_HOME", "LOOPSUP_SESSION", "LOOPSUP_AGENT", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
