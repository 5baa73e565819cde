"""For every test: signals as a terminal's foreground job has them, and no width of a terminal.

A test run started in the background by a script, or under nohup, inherits SIGINT, SIGQUIT or SIGHUP as ignored,
and so would every process a test starts and means to interrupt.
"""

from __future__ import annotations

import signal

import pytest

from loopsup.cli.render import UNCUT

for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says otherwise, no test's text depends on the terminal (or worker) it happens to run in."""
    monkeypatch.setenv("COLUMNS", str(UNCUT))
