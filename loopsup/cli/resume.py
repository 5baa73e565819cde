"""`loopsup resume`: a paused loop goes on; where no supervisor lives, one is started in the same conversation."""

from __future__ import annotations

from loopsup import offline
from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.cli.selection import Session
from loopsup.core.model import Driver
from loopsup.wire.control import Request, Response

RESUME = Request("resume")


def resume(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Let a paused loop go on."""
    return acting.change(session, RESUME, _without_supervisor, as_json=as_json)


def _without_supervisor(session: Session) -> Response:
    loop = session.loop()
    if loop is not None and loop.driver is Driver.TICK:
        return offline.resume(session)
    from loopsup.cli import launch

    return launch.reopen(session, RESUME)
