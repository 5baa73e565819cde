"""`loopsup reload`: the supervisor goes on as the version that is installed now, and nothing else changes."""

from __future__ import annotations

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption, show_result
from loopsup.errors import EXIT_DONE
from loopsup.wire.control import Request


def reload(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Restart the supervisor after an upgrade; refused while a turn is under way."""
    found = selection.pick(session)
    response = acting.need(found, Request("reload"))
    status = acting.back(found)
    show_result(response.message, status, (), as_json=as_json)
    return EXIT_DONE
