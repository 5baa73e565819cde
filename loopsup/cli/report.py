"""`loopsup report`: what happened in a session, as one HTML page to read in the morning or to send on.

The page stands alone: no script, no font, nothing that is fetched. What an agent wrote is text in it and can be
nothing else. It is made from the same rows as `history` and the same words as `status`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopsup.cli.common import SessionOption, here, note
from loopsup.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from loopsup.cli.history_rows import Row
    from loopsup.store.sessions import Entry

MODE = 0o600  # it has what the agent saw

AllOption = Annotated[bool, typer.Option("--all", help="Every session on this machine that can be read.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of to standard output; replaces it."),
]


def report(session: SessionOption = None, everything: AllOption = False, output: OutputOption = None) -> int:
    """Write what happened in the session as an HTML page."""
    if everything and session is not None:
        raise UsageError("--session means one session and --all all of them; give one of the two")
    from loopsup.cli import render, report_page

    entries = _every() if everything else [_picked(session)]
    parts = [_part(entry, status) for entry, status in zip(entries, _statuses(entries), strict=True)]
    page = report_page.page(parts, render.now_ms(), None)
    if output is None:
        if sys.stdout.isatty():
            note("this is HTML; `loopsup report --output FILE` writes it to a file")
        render.write(page, end="")
    else:
        _write(output, page.encode("utf-8"))
        note(f"written to {output}")
    return EXIT_DONE


def _picked(name: str | None) -> Entry:
    from loopsup.cli import selection
    from loopsup.store.home import find_home
    from loopsup.store.sessions import choose

    return choose(find_home(), here(), selection.wanted_name(name))


def _every() -> list[Entry]:
    """What can be read, the most recently used first."""
    from loopsup.store.home import find_home
    from loopsup.store.sessions import list_sessions

    found = list_sessions(find_home())
    for entry in found:
        if entry.identity is None:
            note(f"warning: session '{entry.name}' is left out: {entry.unreadable}")
    return sorted((each for each in found if each.identity is not None), key=lambda each: -each.last_at)


def _statuses(entries: list[Entry]) -> list[Mapping[str, Any]]:
    from loopsup.cli import ls
    from loopsup.clock import supervisors_clock

    return ls.gather(entries, supervisors_clock(os.environ).now(), ls.ask)


def _part(entry: Entry, status: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Row]]:
    """The session's status, and what happened to its loops."""
    from loopsup.cli.history import damage, with_recoveries
    from loopsup.cli.history_recoveries import recovered
    from loopsup.cli.history_rows import reduce
    from loopsup.store import eventlog, journal
    from loopsup.wire.events import CONTINUITY_RECOVERY

    past = reduce(journal.read_all(entry.folder), alive=entry.owner is not None)
    for sentence in damage(past):
        note(f"session '{entry.name}': {sentence}")
    return status, with_recoveries(past.rows, recovered(eventlog.read(entry.folder, only=CONTINUITY_RECOVERY)))


def _write(path: Path, content: bytes) -> None:
    from loopsup.store.files import storage_error, write_atomic

    try:
        if not path.parent.is_dir():
            raise UsageError(f"there is no directory {path.parent} to write {path.name} into")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file, so nothing is written there; leave --output out to print the page")
        write_atomic(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise storage_error("cannot write", path, error) from error
