"""`loopsup update`: change the policy of the loop. New limits are absolute; all or nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from loopsup import offline
from loopsup.cli import acting
from loopsup.cli.common import JsonOption, SessionOption
from loopsup.cli.continuity_options import ContinuityOption, said
from loopsup.cli.policy_options import (
    Faults,
    NewEveryOption,
    NewForOption,
    NewMaxDelayOption,
    NewMaxIterationsOption,
    NewMinDelayOption,
    NewMisfireOption,
    changes,
)
from loopsup.errors import UsageError
from loopsup.wire.control import Request


def update(
    *,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    every: NewEveryOption = None,
    for_: NewForOption = None,
    max_iterations: NewMaxIterationsOption = None,
    min_delay: NewMinDelayOption = None,
    max_delay: NewMaxDelayOption = None,
    misfire: NewMisfireOption = None,
    continuity: ContinuityOption = None,
    after: Annotated[str | None, typer.Option("--after", hidden=True)] = None,
    session: SessionOption = None,
    as_json: JsonOption = False,
) -> int:
    """Change the rhythm or the limits of the loop; its clock and its counters go on."""
    if words:
        raise UsageError("update takes no objective: it never changes; stop this loop and start another one")
    if after is not None:
        raise UsageError("update has no --after: the first iteration has been; use --every for the rhythm")
    faults = Faults()
    policy = changes(
        faults,
        every=every,
        min_delay=min_delay,
        max_delay=max_delay,
        for_=for_,
        max_iterations=max_iterations,
        misfire=misfire,
    )
    recovery = said(faults, continuity)
    faults.refuse()
    if not policy and not recovery:
        raise UsageError(
            "update needs at least one of --every, --for, --max-iterations, --min-delay, --max-delay, --misfire "
            "and --continuity"
        )
    given = {"policy": policy, "continuity": recovery}
    request = Request("update", {key: value for key, value in given.items() if value})
    enabled = recovery.get("enabled")
    return acting.change(session, request, lambda found: offline.update(found, policy, enabled), as_json=as_json)
