"""`loopsup reopen` (hidden): what the unit of an enabled session runs after a reboot.

With the semantics of a reload: an active loop or heartbeat goes on, an overdue wake fires once, an iteration that
was cut off is not repeated. Where nothing was active there is nothing to do, and nobody is started.
"""

from __future__ import annotations

from typing import Annotated

import typer

from loopsup.cli import selection
from loopsup.cli.common import note
from loopsup.cli.selection import Session
from loopsup.core import heartbeat as beat
from loopsup.core.model import Driver, Queued, Running, Waiting
from loopsup.errors import EXIT_DONE, LoopsupError
from loopsup.wire.control import Launch


def reopen(session: Annotated[str, typer.Option("--session", metavar="NAME", help="The session.")]) -> int:
    """Open a session again after a reboot (started by its unit)."""
    found = selection.named(session)
    if not found.identity.enabled:
        note(f"session '{found.name}' is not enabled; `loopsup enable` has it come back")
        return EXIT_DONE
    if found.alive():
        note(f"session '{found.name}' is open already")
        return EXIT_DONE
    if not _active(found):
        note(f"session '{found.name}' has nothing that could go on")
        return EXIT_DONE
    from loopsup.shell.main import supervise

    return supervise(Launch(found.name, "reload", None), lambda _: None)


def _active(session: Session) -> bool:
    from loopsup.store import heartbeat

    loop = session.loop()
    if loop is not None and loop.driver is Driver.RESIDENT and isinstance(loop.phase, Waiting | Queued | Running):
        return True
    try:
        return beat.beats(heartbeat.load(session.folder))
    except LoopsupError:
        return False
