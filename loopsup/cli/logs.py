"""`loopsup logs`: the stored events of the session; with `-f` also those to come.

Works on the file, with and without a supervisor. Damaged lines are skipped, counted and told on standard
error. `-f` keeps the session open, as every follower does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from loopsup.cli import acting, selection
from loopsup.cli.common import JsonLinesOption, SessionOption, note
from loopsup.cli.follow import Ending, watch
from loopsup.cli.screen import JsonLines, Screen, Sink
from loopsup.cli.selection import Session, left
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, SupervisorGoneError

FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Go on with the events to come.")]


def logs(follow: FollowOption = False, session: SessionOption = None, as_json: JsonLinesOption = False) -> int:
    """Show the events of the session."""
    found = selection.pick(session)
    reader = Reader(found.folder)
    sink: Sink = JsonLines(flush=follow) if as_json else Screen(flush=follow)
    try:
        if follow and found.alive():
            return _live(found, reader, sink)
        for event in reader.after(0):
            sink.event(event)
        sink.finish()
        if follow:
            note(f"nobody writes here any more: session '{found.name}' has no supervisor")
        return EXIT_DONE
    finally:
        reader.tell_damage()


def _live(session: Session, reader: Reader, sink: Sink) -> int:
    from loopsup import client

    try:
        seen = watch(session, sink, until_end=False, since=0, past=reader.after)
    except client.UnreachableError as error:
        for event in reader.after(0):
            sink.event(event)
        raise acting.not_answering(session) from error
    except KeyboardInterrupt:
        note(left(session))
        return EXIT_INTERRUPTED
    return SupervisorGoneError.exit if seen.ending is Ending.LOST else EXIT_DONE


class Reader:
    """The events of one session's file; counts the lines that are none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.damaged = 0

    def after(self, seq: int) -> Iterator[dict[str, Any]]:
        """The stored events with a number above `seq`."""
        from loopsup.store import eventlog
        from loopsup.store.files import from_start

        self.damaged = 0
        for _, line in from_start(self._folder / eventlog.NAME):
            event = decoded(line)
            if event is None:
                self.damaged += 1
            elif event["seq"] > seq:
                yield event

    def tell_damage(self) -> None:
        if self.damaged:
            lines = "line was" if self.damaged == 1 else "lines were"
            note(f"warning: {self.damaged} damaged {lines} skipped in {self._folder / 'events.jsonl'}")


def decoded(line: bytes | None) -> dict[str, Any] | None:
    """The event a line stands for, None for anything a reader cannot rely on."""
    try:
        event = json.loads(line or b"")
    except (ValueError, RecursionError):
        return None
    parts = (("seq", int), ("at", str), ("type", str), ("data", dict))
    if not isinstance(event, dict) or not all(isinstance(event.get(key), kind) for key, kind in parts):
        return None
    return event
