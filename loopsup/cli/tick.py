"""`loopsup tick`: fire what is due in the loops that `start --driver tick` made; for cron, a timer, a CronJob.

Rules: with nothing due it reads the end of each journal, says nothing (cron would mail it) and is done. What is due
is fired by a supervisor each, which resumes the conversation, runs the iteration and ends. A session that
somebody owns is asked over its socket, so that no two ever fire the same wake. Loops with a supervisor of their
own are never fired.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from loopsup.cli.common import out, out_json
from loopsup.clock import wall_ms
from loopsup.errors import EXIT_DONE
from loopsup.store import home, ticks

VERSION = 1
JOBS = 4  # agents at a time: each may take a gigabyte, and all of them ask the same provider
MAX_JOBS = 1000

JobsOption = Annotated[
    int, typer.Option("--jobs", metavar="N", min=1, max=MAX_JOBS, help="At most so many iterations at a time.")
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Return when the iterations have begun; those beyond --jobs are left for later."),
]
TickJsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def tick(jobs: JobsOption = JOBS, detach: DetachOption = False, as_json: TickJsonOption = False) -> int:
    """Fire what is due in all loops with `--driver tick`, and return when those iterations have settled."""
    where, now = home.find_home(), wall_ms()
    if not where.check():
        return _nothing(as_json=as_json)
    ticks.stamp(where, now)
    names = list(ticks.perhaps_due(where, now))
    if not names:
        return _nothing(as_json=as_json)
    from loopsup.cli import firing

    outcomes = firing.fire(names, jobs=jobs, detach=detach, tell=None if as_json else out)
    if as_json:
        out_json({"version": VERSION, "sessions": [outcome.as_json() for outcome in outcomes]})
    elif not outcomes:
        return _nothing(as_json=False)
    return next((outcome.exit for outcome in outcomes if outcome.exit != EXIT_DONE), EXIT_DONE)


def _nothing(*, as_json: bool) -> int:
    if as_json:
        out_json({"version": VERSION, "sessions": []})
    elif sys.stdout.isatty():
        out("nothing is due")
    return EXIT_DONE
