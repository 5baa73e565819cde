"""`loopsup control`: the agent's decision from a shell, for agents that have nothing else.

The supervisor gives the verdict; what it refuses is exit 4 with its words, so that the model can correct itself.
Only the agent that the session drives now has the token for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from loopsup.cli.common import JsonOption, show_result
from loopsup.errors import EXIT_DONE, RefusedError
from loopsup.wire.control import SOCKET_VARIABLE, TOKEN_VARIABLE, Request

DecisionArgument = Annotated[str, typer.Argument(metavar="DECISION", help="continue, complete, fail or block.")]
SummaryOption = Annotated[str, typer.Option("--summary", metavar="TEXT", help="What is the case now.")]
EvidenceOption = Annotated[
    str, typer.Option("--evidence", metavar="TEXT", help="Observed state, a command run, a reference.")
]
DelayOption = Annotated[
    str | None,
    typer.Option("--next-delay", metavar="DUR", help="With continue and the auto rhythm: when to wake again."),
]


def control(
    decision: DecisionArgument,
    summary: SummaryOption,
    evidence: EvidenceOption,
    next_delay: DelayOption = None,
    as_json: JsonOption = False,
) -> int:
    """Report the decision of the iteration under way (for the agent, not for people)."""
    from loopsup import client

    path, token = os.environ.get(SOCKET_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    if not path or not token:
        raise RefusedError(
            f"only the agent of a loop can decide, and this is not its shell "
            f"({SOCKET_VARIABLE} and {TOKEN_VARIABLE} are not set); a person uses stop"
        )
    arguments: dict[str, Any] = {"decision": decision, "summary": summary, "evidence": evidence}
    if next_delay is not None:
        arguments["nextDelay"] = next_delay
    response = client.request(Path(path), Request("decide", {"token": token, "arguments": arguments}))
    show_result(response.message, dict(response.status or {}), response.warnings, as_json=as_json)
    return EXIT_DONE
