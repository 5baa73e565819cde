"""`loopsup stop`: the loop ends for good; what is in flight is not aborted."""

from __future__ import annotations

from loopsup import offline
from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.wire.control import Request


def stop(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """End the loop for good; the agent may finish what it is doing."""
    return acting.change(session, Request("stop"), offline.stop, as_json=as_json)
