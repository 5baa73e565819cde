"""Terminals that a test holds: how a new one is set, and its end."""

from __future__ import annotations

import contextlib
import os
import termios
import time
from typing import Any

import pexpect

PATIENCE_S = 60.0
POLL_S = 0.02


def fresh_modes() -> list[Any]:
    """How the system makes a terminal. Of its own one a program may have changed them before a test looks."""
    master, slave = os.openpty()
    try:
        return termios.tcgetattr(master)
    finally:
        os.close(master)
        os.close(slave)


def hang_up(child: pexpect.spawn) -> None:
    """The line goes dead, and whoever sits at it ends. pexpect's own way gives a busy machine a tenth of a second to
    show a death, and raises then."""
    with contextlib.suppress(pexpect.ExceptionPexpect):
        child.close(force=True)
    give_up = time.monotonic() + PATIENCE_S
    while child.isalive():
        assert time.monotonic() < give_up, f"process {child.pid} outlives its terminal"
        time.sleep(POLL_S)
