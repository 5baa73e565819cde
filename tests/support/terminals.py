"""The end of a terminal that a test holds."""

from __future__ import annotations

import contextlib
import time

import pexpect

PATIENCE_S = 60.0
POLL_S = 0.02


def hang_up(child: pexpect.spawn) -> None:
    """The line goes dead, and whoever sits at it ends. pexpect's own way gives a busy machine a tenth of a second to
    show a death, and raises then."""
    with contextlib.suppress(pexpect.ExceptionPexpect):
        child.close(force=True)
    give_up = time.monotonic() + PATIENCE_S
    while child.isalive():
        assert time.monotonic() < give_up, f"process {child.pid} outlives its terminal"
        time.sleep(POLL_S)
