"""`loopsup close`: end the session in good order; an active loop is kept as paused."""

from __future__ import annotations

import contextlib
import os

from loopsup import offline
from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.clock import mono_ms
from loopsup.wire.control import Request

GONE_MS = 2000  # it answers with its work done; what is left is the end of an interpreter
POLL_S = 0.01


def close(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """End the session and its agent; an active loop is kept as paused."""
    found = selection.pick(session)
    owner = found.owner_pid()
    response = acting.perform(found, Request("close"), offline.close)
    if owner is not None:
        _until_gone(owner)
    return acting.finish(found, response, as_json=as_json)


def _until_gone(pid: int) -> None:
    """Whoever comes next finds no process of the session."""
    give_up = mono_ms() + GONE_MS
    with contextlib.suppress(OSError):
        while mono_ms() < give_up:
            os.kill(pid, 0)
            acting.pause(POLL_S)
