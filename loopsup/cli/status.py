"""`loopsup status`: the truth about the session and its loop; changes nothing.

Rules: with a live supervisor its own word; without one the journal's, in which nothing is said to be
waiting, queued or running; with one that holds the lock and does not answer the journal's last state, exit 5.
"""

from __future__ import annotations

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption, note, show_status
from loopsup.errors import EXIT_DONE, SupervisorGoneError
from loopsup.wire.control import Request


def status(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Show the session and its loop."""
    found = selection.pick(session)
    try:
        response = acting.ask(found, Request("status"))
    except SupervisorGoneError as error:
        from loopsup import offline

        show_status(offline.status(found.refreshed(), alive=True), as_json=as_json)
        note(error.message)
        return error.exit
    if response is None or response.status is None:
        from loopsup import offline

        show_status(offline.status(found.refreshed()), as_json=as_json)
    else:
        show_status(response.status, as_json=as_json)
    return EXIT_DONE
