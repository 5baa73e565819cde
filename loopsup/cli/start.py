"""`loopsup start`: give a session a loop, in a supervisor that outlives this command.

Rules: everything that is wrong with the command line is told at once and before anything is touched.
Afterwards `start` follows the conversation until the loop ends; leaving (Ctrl-C) never stops the loop.
"""

from __future__ import annotations

from typing import Annotated

import typer

from loopsup.cli import objective, starting
from loopsup.cli.common import TAIL, SessionOption, here, note, show_result, show_status, warn
from loopsup.cli.continuity_options import ContinuityOption, MaxResumesOption, StreamDelayOption, said
from loopsup.cli.headline import ENDED
from loopsup.cli.policy_options import (
    AfterOption,
    EveryOption,
    Faults,
    ForOption,
    MaxDelayOption,
    MaxIterationsOption,
    MinDelayOption,
    MisfireOption,
    as_policy,
    changes,
    with_defaults,
)
from loopsup.cli.selection import Session
from loopsup.cli.wait import exit_code
from loopsup.core.model import Driver
from loopsup.core.policy import check
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, SupervisorGoneError, UsageError
from loopsup.wire.control import Response

EPILOG = """\b
For an objective that starts with a dash:
  loopsup start [OPTIONS] -- OBJECTIVE [-- AGENT ARGS…]
Long ones: - or --objective-file - reads standard input.
"""


def start(
    ctx: typer.Context,
    *,
    words: Annotated[list[str] | None, typer.Argument(metavar="OBJECTIVE [-- AGENT ARGS…]")] = None,
    every: EveryOption = None,
    after: AfterOption = None,
    for_: ForOption = None,
    max_iterations: MaxIterationsOption = None,
    min_delay: MinDelayOption = None,
    max_delay: MaxDelayOption = None,
    misfire: MisfireOption = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="The agent; default: default_agent, else the first found. See `loopsup agents`.",
        ),
    ] = None,
    session: SessionOption = None,
    continue_: Annotated[
        str | None,
        typer.Option("--continue", metavar="REF", help="Adopt a conversation of the agent: its id or file."),
    ] = None,
    allow_all: Annotated[bool, typer.Option("--allow-all", help="The agent need not ask before a tool.")] = False,
    objective_file: Annotated[
        str | None,
        typer.Option("--objective-file", metavar="FILE", help="Read the objective from here; - is standard input."),
    ] = None,
    continuity: ContinuityOption = None,
    continuity_max_resumes: MaxResumesOption = None,
    continuity_stream_delay_ms: StreamDelayOption = None,
    driver: Annotated[
        Driver,
        typer.Option(
            "--driver",
            help="Who wakes it: its own supervisor, or `loopsup tick` from cron, a timer or a CronJob.",
        ),
    ] = Driver.RESIDENT,
    park: Annotated[
        bool, typer.Option("--park", help="Close the agent between wakes at least 10m apart; resume it for the next.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as the loop is accepted.")] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="Run the supervisor in this process.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="With --foreground: stay when the loop has ended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: event lines while it follows, the status object last.")
    ] = False,
) -> int:
    """Keep an agent on OBJECTIVE (one argument, or - for standard input) until it is reached."""
    given, agent_args = objective.split_words(words or [], ctx.obj[TAIL], has_file=objective_file is not None)
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
    recovery = said(faults, continuity, continuity_max_resumes, continuity_stream_delay_ms)
    after_ms = _after(faults, after)
    text = _objective(faults, given, objective_file)
    faults.add(_impossible(every, detach=detach, foreground=foreground, keep=keep, driver=driver))
    warnings: tuple[str, ...] = ()
    if not faults:
        checked = check(as_policy(with_defaults(policy)), after_ms)
        faults.add(checked.faults)
        warnings = checked.warnings
    faults.refuse()
    order = starting.Order(
        text,
        with_defaults(policy),
        after_ms,
        agent,
        session,
        continue_,
        allow_all,
        agent_args,
        here(),
        recovery,
        driver.value,
        park,
    )
    warn(starting.key_warnings(agent_args))
    warn(starting.park_warnings(order))
    if foreground:
        warn(warnings)  # the response, which has them too, is for whoever started a process
        return starting.foreground(order, keep=keep, as_json=as_json)
    found, response = starting.detached(order)
    if driver is Driver.TICK:
        return _left_to_ticks(found, response, as_json=as_json)
    return _accepted(found, response, detach=detach, as_json=as_json)


def _left_to_ticks(session: Session, response: Response, *, as_json: bool) -> int:
    """Nobody waits for the loop, so there is nothing to follow: its supervisor has ended, and now it is a tick's."""
    text = (
        f"started in session '{session.name}'; `loopsup tick` fires it when it is due "
        "(`loopsup install-timer` sets up a timer for that)"
    )
    show_result(text, dict(response.status or {}), response.warnings, as_json=as_json)
    return EXIT_DONE


def _accepted(session: Session, response: Response, *, detach: bool, as_json: bool) -> int:
    """The loop is accepted: tell it and return, or follow it."""
    if detach:
        text = (
            f"started in session '{session.name}'; `loopsup attach --session {session.name}` shows it, "
            f"`loopsup stop --session {session.name}` ends it"
        )
        show_result(text, dict(response.status or {}), response.warnings, as_json=as_json)
        return EXIT_DONE
    try:
        warn(response.warnings)
        return _follow(session, as_json=as_json)
    except KeyboardInterrupt:  # from here on the loop does not depend on this command
        note(
            f"the loop goes on; `loopsup attach --session {session.name}` shows it again, "
            f"`loopsup stop --session {session.name}` ends it"
        )
        return EXIT_INTERRUPTED


def _follow(session: Session, *, as_json: bool) -> int:
    from loopsup import offline
    from loopsup.cli import follow

    try:
        status = follow.run(session.identity, json_mode=as_json, until_end=True)
    except SupervisorGoneError:
        if session.refreshed().alive():
            raise
        status = None  # it was done before we came: the files say how
    if status is None:
        status = offline.status(session.refreshed())
    if as_json:
        show_status(status, as_json=True)
    elif (status["loop"] or {}).get("state") in ENDED:
        note(f"`loopsup start --session {session.name} …` gives this conversation its next objective")
    return exit_code(status)


def _after(faults: Faults, text: str | None) -> int | None:
    if text == "auto":
        faults.add(["--after: 'auto' is not a duration; write how long to wait, like 5m"])
        return None
    return faults.duration("--after", text)


def _objective(faults: Faults, words: list[str], file: str | None) -> str:
    try:
        return objective.read(words, file)
    except UsageError as error:
        faults.add([error.message])
        return ""


def _impossible(every: str | None, *, detach: bool, foreground: bool, keep: bool, driver: Driver) -> list[str]:
    found = []
    if every is None:
        found.append("--every is missing; give it a duration like 10m, or auto")
    if detach and foreground:
        found.append("--detach and --foreground exclude each other; give one of them")
    if foreground and driver is Driver.TICK:
        found.append("--foreground and --driver tick exclude each other: nobody waits for a loop that ticks drive")
    if keep and not foreground:
        found.append("--keep is only for --foreground")
    return found
