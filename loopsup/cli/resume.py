"""`loopsup resume`: a paused loop goes on; where no supervisor lives, one is started in the same conversation."""

from __future__ import annotations

from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.wire.control import Request


def resume(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Let a paused loop go on."""
    from loopsup.cli import launch

    request = Request("resume")
    return acting.change(session, request, lambda found: launch.reopen(found, request), as_json=as_json)
