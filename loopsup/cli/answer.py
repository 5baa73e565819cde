"""`loopsup answer allow|deny [ID]`: answer the question the agent waits with."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.errors import UsageError
from loopsup.wire.control import Request

ALLOW, DENY = "allow", "deny"


def answer(
    *,
    verdict: Annotated[str, typer.Argument(metavar="allow|deny")],
    question: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The question's id, to be sure that it is still the same one."),
    ] = None,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> int:
    """Answer the agent's pending question (`loopsup status` shows it)."""
    if verdict not in (ALLOW, DENY):
        raise UsageError(f"'{verdict}' is no answer; say `loopsup answer allow` or `loopsup answer deny`")
    args: dict[str, Any] = {"allow": verdict == ALLOW}
    if question is not None:
        args["id"] = question
    found = selection.pick(session)
    return acting.finish(found, acting.need(found, Request("answer", args)), as_json=as_json)
