"""`loopsup status`: the truth about the session and its loop; changes nothing.

Rules: with a live supervisor its own word; without one the journal's, in which nothing is said to be
waiting, queued or running; with one that holds the lock and does not answer the journal's last state, exit 5.
"""

from __future__ import annotations

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption, note, show_status
from loopsup.cli.status_words import NOT_ANSWERING
from loopsup.errors import EXIT_DONE, SupervisorGoneError
from loopsup.wire.control import Request


def status(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Show the session and its loop."""
    found = selection.pick(session)
    try:
        response = acting.ask(found, Request("status"))
    except SupervisorGoneError as error:
        from loopsup import offline

        found = found.refreshed()
        alive = found.alive()
        shown = offline.status(found, alive=alive)
        if alive:
            known = shown["session"]["problem"]
            shown["session"]["problem"] = f"{known}; {NOT_ANSWERING}" if known else NOT_ANSWERING
        show_status(shown, as_json=as_json)
        if not alive:  # it died while we asked: the files have the truth
            return EXIT_DONE
        note(error.message)
        return error.exit
    told = None if response is None else response.status
    if told is None:
        from loopsup import offline

        told = offline.status(found.refreshed())
    show_status(told, as_json=as_json)
    return EXIT_DONE
