"""What `status` imports where a supervisor answers: the command line's frame and little else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopsup.wire.control import Response
from tests.cli.support import Sessions, a_loop, status_of

UNNEEDED = (
    "asyncio",
    "rich",
    "psutil",
    "pydantic",
    "importlib.metadata",
    "loopsup.core.model",
    "loopsup.store.journal",
    "loopsup.offline",
    "loopsup.ports",
    "loopsup.shell",
)
CODE = f"""
import sys
from loopsup.cli.app import run
code = run(["status", "--json"])
print(code, [name for name in {UNNEEDED!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.slow
def test_status_of_a_live_session_imports_no_rule_and_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "home"))
    sessions = Sessions(tmp_path)
    loop = a_loop()
    with sessions.live("work", loop, status=Response(status_of(loop))):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.stderr.decode().splitlines() == ["0 []"]
    assert json.loads(done.stdout)["loop"]["state"] == "waiting"
