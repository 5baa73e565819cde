"""`loopsup say "text"`: a normal user message into the conversation; the loop's rhythm is not touched."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from loopsup import client
from loopsup.cli import acting, launch, selection
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.cli.selection import Session
from loopsup.cli.wait import TimeoutOption, seconds
from loopsup.core.autopilot import DEFAULT_REMINDERS, MAX_REMINDERS
from loopsup.errors import UsageError, WaitTimeoutError
from loopsup.wire.control import MAX_OBJECTIVE, Request, Response


def say(
    *,
    words: Annotated[list[str] | None, typer.Argument(metavar="TEXT")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the message has been dealt with.")] = False,
    timeout: TimeoutOption = None,
    autopilot: Annotated[
        bool, typer.Option("--autopilot", help="Remind the agent until it says that the task is complete.")
    ] = False,
    max_reminders: Annotated[
        int | None,
        typer.Option("--max-reminders", metavar="N", min=0, max=MAX_REMINDERS, help="At most so often; default 5."),
    ] = None,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say something to the agent, as a normal user message."""
    text = _text(words or [])
    if max_reminders is not None and not autopilot:
        raise UsageError("--max-reminders is only for --autopilot; add --autopilot or leave it out")
    if timeout is not None and not wait:
        raise UsageError("--timeout is only for --wait; add --wait or leave it out")
    timeout_s = seconds(timeout)
    found = selection.pick(session)
    args: dict[str, Any] = {"text": text, "wait": wait}
    if autopilot:
        args |= {"autopilot": True, "maxReminders": DEFAULT_REMINDERS if max_reminders is None else max_reminders}
    response = _say(found, Request("say", args), timeout_s)
    return acting.finish(found, response, as_json=as_json)


def _say(session: Session, request: Request, timeout_s: float | None) -> Response:
    try:
        response = acting.ask(session, request, timeout_s)
        if response is not None:
            return response
        if not request.args["wait"]:
            return launch.reopen(session, request)
        launch.reopen(session, None)  # the launch itself is bounded, the waiting is not
        return acting.need(session, request, timeout_s)
    except client.NoAnswerError as error:
        if timeout_s is None:
            raise
        raise WaitTimeoutError("the agent is not done with it within --timeout; the message stays said") from error


def _text(words: list[str]) -> str:
    if not words:
        raise UsageError('say what? Give the text as one argument: loopsup say "text"')
    if len(words) > 1:
        raise UsageError('the text is one argument; put it in quotes: loopsup say "…"')
    try:
        text = os.fsencode(words[0]).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not valid UTF-8 (byte {error.start}); convert it first") from error
    if not text.strip():
        raise UsageError("the text is blank; there is nothing to say")
    if len(text.encode()) > MAX_OBJECTIVE:
        raise UsageError("the text is longer than 1 MiB; put it into a file and name the file")
    return text
