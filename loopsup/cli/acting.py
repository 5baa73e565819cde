"""How a verb reaches its session: over the socket while a supervisor lives, else another way.

Rules: the lock says whether a supervisor lives, its socket only how to talk to it. A supervisor that holds
the lock and answers nobody within `ANSWER_TIMEOUT_S` is exit 5, and nothing is changed behind its back. One that
does not listen yet is waited for longer, but for a `status`. One that ends before it answers leaves open whether it
did what it was asked; only where its journal shows that it did not is that done without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopsup import client
from loopsup.cli import selection
from loopsup.cli.common import show_result
from loopsup.cli.selection import Session
from loopsup.clock import mono_ms
from loopsup.errors import EXIT_DONE, ClosingError, LoopsupError, RefusedError, SupervisorGoneError
from loopsup.wire.control import ANSWER_TIMEOUT_S, Request, Response

CLOSING_MS = 60_000  # a hook that runs to its limit and an agent that has to be made to end take half of it
BACK_MS = 60_000  # an interpreter starts in well under a second; a busy machine gets the rest
BACK_POLL_S = 0.1
RETRY_S = 0.05  # a supervisor that has just taken the lock makes its socket within milliseconds
# But first it ends what a killed one left behind, and a removed socket is made again after 30 s at the latest.
STARTING_MS = 40_000
RECORDED = frozenset({"pause", "stop", "update", "close"})  # what they change of a loop stands in the journal

Otherwise = Callable[[Session], Response]


def change(name: str | None, request: Request, without: Otherwise, *, as_json: bool) -> int:
    """Carry out a changing verb: by the supervisor, or by `without` where none lives; and show the result."""
    session = selection.pick(name)
    return finish(session, perform(session, request, without), as_json=as_json)


def perform(session: Session, request: Request, without: Otherwise) -> Response:
    """The response of the supervisor, or of `without`."""
    since = _next_seq(session) if request.verb in RECORDED else None
    try:
        response = ask(session, request)
    except client.WentAwayError:
        if not _undone(session, request, since):
            raise
        response = None
    if response is not None:
        return response
    try:
        return without(session)
    except RefusedError:  # somebody took the session in between: most likely a supervisor, which then answers
        response = ask(session, request)
        if response is None:
            raise
        return response


def _next_seq(session: Session) -> int | None:
    """The number the next record of its journal will have; None where that cannot be read."""
    from loopsup.store.journal import read_tail

    try:
        return read_tail(session.refreshed().folder).next_seq
    except LoopsupError:
        return None


def _undone(session: Session, request: Request, since: int | None) -> bool:
    """Its supervisor has ended, and certainly without having done this (closing may be done twice).

    `since`: the first number the record of it could have. Of a damaged journal nothing is certain.
    """
    from loopsup.core import events
    from loopsup.store.journal import read_all
    from loopsup.wire.journal import Record

    if since is None or not _ends(session):
        return False
    kinds = {"pause": events.Pause, "stop": events.Stop, "update": events.Update}
    kind = kinds.get(request.verb, ())
    lines = read_all(session.refreshed().folder)
    return all(
        isinstance(line, Record) and not (line.seq >= since and isinstance(line.event, kind)) for line in lines
    )


def _ends(session: Session) -> bool:
    """It lets go of the lock within `ANSWER_TIMEOUT_S`: that is the last thing it does."""
    give_up = mono_ms() + ANSWER_TIMEOUT_S * 1000
    while session.alive():
        if mono_ms() >= give_up:
            return False
        pause(RETRY_S)
    return True


def ask(session: Session, request: Request, timeout_s: float | None = None) -> Response | None:
    """The supervisor's response; None if none lives (also where it ended just now).

    `timeout_s`: how long the answer may take, None for what the verb may take by itself.
    """
    began = silent = mono_ms()
    while session.alive():
        try:
            return client.request(session.refreshed().socket, request, timeout_s)
        except ClosingError:  # it closes by itself just now: then another way is open
            if mono_ms() - began >= CLOSING_MS:
                raise
            pause(RETRY_S)
            silent = mono_ms()
        except client.WentAwayError:  # it closes just now, and holds the lock to the last: then the files tell it
            if request.verb != "status" or mono_ms() - silent >= ANSWER_TIMEOUT_S * 1000:
                raise
            pause(RETRY_S)
        except client.UnreachableError as error:
            if not session.alive():
                return None
            if mono_ms() - silent >= _patience_ms(request, timeout_s, error):
                raise not_answering(session) from error
            pause(RETRY_S)
    return None


def _patience_ms(request: Request, timeout_s: float | None, error: client.UnreachableError) -> float:
    """How long a supervisor that holds the lock may be out of reach."""
    if request.verb == "status" or not isinstance(error, client.NobodyListensError):
        return ANSWER_TIMEOUT_S * 1000
    if timeout_s is None or request.verb not in ("wait", "say"):
        return STARTING_MS
    return min(STARTING_MS, max(timeout_s, ANSWER_TIMEOUT_S) * 1000)  # `--timeout`


def need(session: Session, request: Request, timeout_s: float | None = None) -> Response:
    """The supervisor's response, for what only a supervisor can do."""
    response = ask(session, request, timeout_s)
    if response is None:
        raise SupervisorGoneError(
            f"session '{session.name}' has no supervisor, so there is no agent to {request.verb}; "
            f"`loopsup resume --session {session.name}` brings a paused loop back"
        )
    return response


def back(session: Session) -> dict[str, Any]:
    """The status of a supervisor that is being restarted (a reload), once it answers again. SupervisorGoneError."""
    give_up = mono_ms() + BACK_MS
    while session.alive() and mono_ms() < give_up:
        try:
            status = client.request(session.refreshed().socket, Request("status"), ANSWER_TIMEOUT_S).status
        except SupervisorGoneError:
            status = None
        if status is not None and status["session"]["supervisor"]["alive"]:
            return dict(status)
        pause(BACK_POLL_S)
    raise SupervisorGoneError(
        f"the supervisor of session '{session.name}' did not come back; "
        f"look into {session.folder / 'supervisor.log'}, `loopsup resume --session {session.name}` goes on"
    )


def not_answering(session: Session) -> SupervisorGoneError:
    owner = session.owner_pid()
    who = f" (process {owner})" if owner is not None else ""
    return SupervisorGoneError(
        f"the supervisor of session '{session.name}'{who} does not answer; nothing was changed, "
        f"look into {session.folder / 'supervisor.log'}"
    )


def finish(session: Session, response: Response, *, as_json: bool) -> int:
    """Show what became of a changing verb."""
    status: dict[str, Any] = dict(response.status or {})
    if as_json and response.status is None:
        from loopsup import offline

        status = offline.status(session.refreshed())
    show_result(response.message, status, response.warnings, as_json=as_json)
    return EXIT_DONE


def pause(seconds: float) -> None:
    """Wait so long."""
    import time

    time.sleep(seconds)
