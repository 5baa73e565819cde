"""`loopsup wait`: block until the loop ends or needs a person; the exit code says which.

A supervisor that dies in the meantime is no error of `wait`: the files then say how the loop stands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from loopsup import client
from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption, note, show_status
from loopsup.cli.policy_options import Faults
from loopsup.cli.selection import Session, left
from loopsup.clock import mono_ms
from loopsup.errors import EXIT_INTERRUPTED, WAIT_EXIT, NotFoundError, SupervisorGoneError, WaitTimeoutError
from loopsup.wire.control import Request

POLL_S = 1.0  # between two ticks there are only files to look at; ticks come once a minute
ACTIVE = frozenset({"waiting", "queued", "running"})
TIME_IS_UP = "the loop goes on: it neither ended nor paused within --timeout"
TimeoutOption = Annotated[str | None, typer.Option("--timeout", metavar="DUR", help="Give up after this long.")]


def wait(timeout: TimeoutOption = None, session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Block until the loop ends or needs a person; the exit code says which."""
    timeout_s = seconds(timeout)
    found = selection.pick(session)
    try:
        status = _until_it_rests(found, timeout_s)
    except KeyboardInterrupt:
        note(left(found))
        return EXIT_INTERRUPTED
    code = exit_code(status)
    show_status(status, as_json=as_json)
    return code


def seconds(timeout: str | None) -> float | None:
    """The value of `--timeout`; None where it is absent."""
    faults = Faults()
    ms = faults.duration("--timeout", timeout)
    faults.refuse()
    return None if ms is None else ms / 1000


def exit_code(status: Mapping[str, Any]) -> int:
    """What a `wait` or a `start` that followed exits with."""
    loop = status["loop"]
    if loop is None:
        raise NotFoundError(f"session '{status['session']['name']}' has no loop; `loopsup start` gives it one")
    outcome = loop["pauseReason"] or loop["state"]
    if outcome not in WAIT_EXIT:  # still active, and nobody there to say so: the supervisor went in between
        raise SupervisorGoneError(f"the loop is {loop['state']} and its supervisor does not answer")
    return WAIT_EXIT[outcome]


def _until_it_rests(session: Session, timeout_s: float | None) -> Mapping[str, Any]:
    """Also across a reload, and the pauses in which nobody is there because a later `loopsup tick` fires the wake."""
    give_up = None if timeout_s is None else mono_ms() + int(timeout_s * 1000)
    while True:
        left_s = None if give_up is None else (give_up - mono_ms()) / 1000
        if left_s is not None and left_s <= 0:
            raise WaitTimeoutError(TIME_IS_UP)
        status = _once(session, left_s)
        if status is None:
            continue
        loop = status["loop"]
        if loop is None or loop["state"] not in ACTIVE:
            return status
        if loop["driver"] != "tick":
            if not _restarted(session):
                return offline_status(session)
            continue
        if left_s is not None and left_s < POLL_S:
            raise WaitTimeoutError(TIME_IS_UP)
        time.sleep(POLL_S)
        session = session.refreshed()


def _restarted(session: Session) -> bool:
    """The supervisor went and left its loop active: it comes back at a reload, else it is gone."""
    try:
        acting.back(session)
    except SupervisorGoneError:
        if session.alive():
            raise
        return False
    return True


def offline_status(session: Session) -> Mapping[str, Any]:
    from loopsup import offline

    return offline.status(session.refreshed())


def _once(session: Session, timeout_s: float | None) -> Mapping[str, Any] | None:
    """How the loop stands once it rests, or its supervisor went; None: the supervisor went and came back."""
    try:
        response = acting.ask(session, Request("wait"), timeout_s)
    except client.UnreachableError:
        raise
    except client.NoAnswerError as error:
        raise WaitTimeoutError(TIME_IS_UP) from error
    except client.WentAwayError:  # it closes just now, and holds the lock to the last; or it is being restarted
        if _restarted(session):
            return None
        response = None
    if response is None or response.status is None:
        return offline_status(session)
    return response.status
