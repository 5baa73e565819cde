"""`loopsup heartbeat`: the session reports on a cadence, to its followers and to the attention hook.

Without a supervisor, `status`, `pause` and `stop` work on the file; `start` and `resume` bring one up, because
somebody has to be there to report.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from loopsup import offline
from loopsup.cli import acting, render, selection
from loopsup.cli.common import JsonOption, SessionOption, out, show_status
from loopsup.cli.heartbeat_words import NONE, heartbeat_words
from loopsup.cli.policy_options import Faults
from loopsup.core.limits import DAY
from loopsup.errors import EXIT_DONE, UsageError
from loopsup.wire.control import Request


class Action(StrEnum):
    """What can be done with a heartbeat."""

    START = "start"
    STATUS = "status"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


def heartbeat(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="start, status, pause, resume or stop.")],
    every: Annotated[str | None, typer.Option("--every", metavar="DUR", help="start: how often.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DUR", help="start: it ends by itself after this; default 24h.")
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="start: also ask the agent, a turn each time.")] = False,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> int:
    """Report on a cadence how the session stands: start, status, pause, resume or stop."""
    args = _args(action, every, for_, ask=ask)
    if action is Action.STATUS:
        return _status(session, as_json=as_json)
    request = Request("heartbeat", args)
    if action in (Action.START, Action.RESUME):
        from loopsup.cli import launch

        return acting.change(session, request, lambda found: launch.reopen(found, request), as_json=as_json)
    return acting.change(session, request, lambda found: offline.heartbeat(found, action.value), as_json=as_json)


def _args(action: Action, every: str | None, for_: str | None, *, ask: bool) -> dict[str, Any]:
    if action is not Action.START:
        if every is not None or for_ is not None or ask:
            raise UsageError("--every, --for and --ask are only for `loopsup heartbeat start`")
        return {"action": action.value}
    faults = Faults()
    every_ms, for_ms = faults.duration("--every", every), faults.duration("--for", for_)
    if every is None:
        faults.add(["--every is missing; give it a duration like 10m"])
    faults.refuse()
    return {"action": "start", "everyMs": every_ms, "forMs": DAY if for_ms is None else for_ms, "ask": ask}


def _status(name: str | None, *, as_json: bool) -> int:
    session = selection.pick(name)
    response = acting.ask(session, Request("status"))
    told = response.status if response is not None else None
    status = offline.status(session.refreshed()) if told is None else told
    if as_json:
        show_status(status, as_json=True)
    else:
        found = status.get("heartbeat")
        out(NONE if found is None else f"a heartbeat {heartbeat_words(found, render.now_ms(), None)}")
    return EXIT_DONE
