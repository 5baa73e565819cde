"""`loopsup reload`: the supervisor goes on as the version that is installed now, and nothing else changes."""

from __future__ import annotations

import time
from typing import Any

from loopsup import client
from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption, show_result
from loopsup.cli.selection import Session
from loopsup.clock import mono_ms
from loopsup.errors import EXIT_DONE, SupervisorGoneError
from loopsup.wire.control import ANSWER_TIMEOUT_S, Request

BACK_S = 60.0  # an interpreter starts in well under a second; a busy machine gets the rest
POLL_S = 0.1


def reload(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Restart the supervisor after an upgrade; refused while a turn is under way."""
    found = selection.pick(session)
    response = acting.need(found, Request("reload"))
    status = _back(found)
    show_result(response.message, status, (), as_json=as_json)
    return EXIT_DONE


def _back(session: Session) -> dict[str, Any]:
    """Its status once it answers again."""
    give_up = mono_ms() + int(BACK_S * 1000)
    while session.alive() and mono_ms() < give_up:
        try:
            status = client.request(session.socket, Request("status"), ANSWER_TIMEOUT_S).status
        except SupervisorGoneError:
            status = None
        if status is not None and status["session"]["supervisor"]["alive"]:
            return dict(status)
        time.sleep(POLL_S)
    raise SupervisorGoneError(
        f"the supervisor of session '{session.name}' did not come back; "
        f"look into {session.folder / 'supervisor.log'}, `loopsup resume --session {session.name}` goes on"
    )
