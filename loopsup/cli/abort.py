"""`loopsup abort`: end the turn in flight now; an iteration pauses the loop as `interrupted`."""

from __future__ import annotations

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.wire.control import Request


def abort(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """End what the agent is doing now; an iteration pauses the loop."""
    found = selection.pick(session)
    return acting.finish(found, acting.need(found, Request("abort")), as_json=as_json)
