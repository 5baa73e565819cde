"""For every test: signals as a terminal's foreground job has them, no width of a terminal, Python's own buffers.

A test run started in the background by a script, or under nohup, inherits SIGINT, SIGQUIT or SIGHUP as ignored,
and so would every process a test starts and means to interrupt. PYTHONUNBUFFERED, usual in containers, would hide a
flush that a user's shell needs. A test with real processes has more time.
"""

from __future__ import annotations

import os
import signal

import pytest

from loopsup.cli.render import UNCUT

SLOW_S = 300  # such a test takes seconds; a machine that is many times slower than ours gets the rest

for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_S))


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says otherwise, no test's text depends on the terminal (or worker) it happens to run in."""
    monkeypatch.setenv("COLUMNS", str(UNCUT))
