"""`loopsup attach`: watch the conversation live, and on a terminal take part in it. Leaving never stops the loop.

Exit code 5 without a supervisor, and where it dies while we watch; 130 for Ctrl-C; 0 when the session closes.
"""

from __future__ import annotations

import os
import sys

from loopsup.cli import acting, render, selection
from loopsup.cli.attach_words import so_far
from loopsup.cli.common import JsonLinesOption, SessionOption, note
from loopsup.cli.follow import Ending, watch
from loopsup.cli.screen import JsonLines, Screen, Sink
from loopsup.cli.selection import Session, left
from loopsup.core.model import Loop, Paused
from loopsup.core.reasons import words
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, SupervisorGoneError


def attach(session: SessionOption = None, as_json: JsonLinesOption = False) -> int:
    """Follow the conversation live; Ctrl-C leaves and the loop goes on."""
    from loopsup import client
    from loopsup.cli import attach_terminal

    found = selection.pick(session)
    if not found.alive():
        raise nobody(found)
    if not as_json and _on_terminal() and attach_terminal.wanted(found):
        try:
            return attach_terminal.attach(found)
        except client.UnreachableError as error:
            raise (acting.not_answering(found) if found.alive() else nobody(found)) from error
    loop = found.loop()
    note(f"watching session '{found.name}' ({found.identity.agent}); {_meanwhile(loop)}")
    if not as_json:
        if (before := so_far(loop, render.now_ms())) is not None:
            note(before, quotes=True)
        note(f"`loopsup logs --session {found.name}` shows what came before")
    try:
        if not as_json and _on_terminal():
            from loopsup.cli import attach_live

            return attach_live.attach(found)
        sink: Sink = JsonLines() if as_json else Screen()
        seen = watch(found, sink, until_end=False)
    except client.UnreachableError as error:
        raise (acting.not_answering(found) if found.alive() else nobody(found)) from error
    except KeyboardInterrupt:
        note(left(found))
        return EXIT_INTERRUPTED
    return SupervisorGoneError.exit if seen.ending is Ending.LOST else EXIT_DONE


def _on_terminal() -> bool:
    """There is a terminal to read from and to write to, and it can do more than a teletype."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _meanwhile(loop: Loop | None) -> str:
    """How to leave, and what that means for the loop as it stands."""
    if loop is None:
        return "it has no loop; Ctrl-C leaves"
    if loop.terminal:
        return f"its loop has ended ({loop.state.value}); Ctrl-C leaves"
    if isinstance(loop.phase, Paused):
        return f"its loop is paused ({words(loop.phase.reason)}); Ctrl-C leaves"
    return "Ctrl-C leaves, and the loop goes on"


def nobody(session: Session) -> SupervisorGoneError:
    """There is nothing to watch."""
    return SupervisorGoneError(
        f"session '{session.name}' has no supervisor, so there is nothing to watch; `loopsup history` shows what "
        f"happened, `loopsup resume --session {session.name}` brings a paused loop back"
    )
