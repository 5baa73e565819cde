"""`loopsup close`: end the session in good order; an active loop is kept as paused."""

from __future__ import annotations

from loopsup import offline
from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.wire.control import Request


def close(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """End the session and its agent; an active loop is kept as paused."""
    return acting.change(session, Request("close"), offline.close, as_json=as_json)
