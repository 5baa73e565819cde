"""`loopsup pause`: no new iteration until `resume`; what is in flight goes on, the deadline too."""

from __future__ import annotations

from loopsup import offline
from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.wire.control import Request


def pause(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Pause the loop; the agent may finish what it is doing."""
    return acting.change(session, Request("pause"), offline.pause, as_json=as_json)
