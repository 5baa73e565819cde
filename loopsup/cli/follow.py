"""Following a session live: what `attach`, `logs -f` and a `start` that follows have in common.

Rules: following never changes anything, and leaving (Ctrl-C, which the caller handles) never stops a loop.
Nothing is missed and nothing shown twice: older events come from the file, read after the stream was opened,
and an event of the stream that the file had already is skipped by its number. The stream can end because the
loop did, because the session was closed, or because the supervisor died; the last two are told in one
sentence, and then the truth is read from the files. A reload is no end: the stream goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from loopsup.cli.screen import ACTIVE, JsonLines, Screen, Sink
from loopsup.wire.events import EPHEMERAL

if TYPE_CHECKING:
    from loopsup.cli.selection import Session
    from loopsup.store.identity import Identity

RELOAD = "reload"  # the session closed to be opened at once by the program that is installed now

Status = Mapping[str, Any]
Past = Callable[[int], Iterable[Mapping[str, Any]]]
"""The stored events with a number above the one given, oldest first."""


class Ending(StrEnum):
    """How a stream ended."""

    DONE = "done"
    """The loop left waiting, queued and running, and that was what we waited for."""
    CLOSED = "closed"
    """The session was closed in good order."""
    LOST = "lost"
    """The supervisor died."""


@dataclass(slots=True)
class Seen:
    """What a stream has shown. `last_seq` None: no place in the file is known yet."""

    status: dict[str, Any] | None = None
    last_seq: int | None = None
    ending: Ending = Ending.LOST
    reason: str = ""


def run(identity: Identity, *, json_mode: bool, until_end: bool, since: int | None = None) -> dict[str, Any] | None:
    """Follow the session and show it; the last status object, None where the session is gone.

    `until_end`: show the present loop from its beginning and return when it has left waiting, queued and
    running (at once where it already has). `since`: show the stored events after that number first. With
    `json_mode` the events are JSON lines on standard output; the status object is the caller's to print.
    A supervisor that is gone already is no error: what it stored is shown. SupervisorGoneError: one that lives
    and does not answer.
    """
    from loopsup import client
    from loopsup.cli import acting, selection

    session = selection.lookup(identity.name)
    if session is None:
        return None
    sink: Sink = JsonLines() if json_mode else Screen()
    try:
        return watch(session, sink, until_end=until_end, since=since).status
    except client.UnreachableError as error:
        if session.alive():
            raise acting.not_answering(session) from error
        return _only_files(session, sink, until_end=until_end, since=since)


def watch(
    session: Session, sink: Sink, *, until_end: bool, since: int | None = None, past: Past | None = None
) -> Seen:
    """As `run`, with how it ended. `past` reads the stored events (by default all whole ones)."""
    from loopsup import client
    from loopsup.store import eventlog

    stored = past or (lambda after: eventlog.read(session.folder, after))
    try:
        seen = consume(client.follow(session.refreshed().socket), sink, stored, until_end=until_end, since=since)
        while seen.ending is Ending.CLOSED and seen.reason == RELOAD and _is_back(session, seen):
            sink.say("the supervisor was restarted; this goes on")
            again = client.follow(session.refreshed().socket)
            seen = consume(again, sink, stored, until_end=until_end, since=seen.last_seq)
        if seen.ending is not Ending.DONE:
            _tell_end(session, sink, seen)
    finally:
        sink.finish()
    return seen


def _is_back(session: Session, seen: Seen) -> bool:
    """The reload is done. One that did not come back was lost, however it had meant to close."""
    from loopsup.cli import acting
    from loopsup.errors import SupervisorGoneError

    try:
        acting.back(session)
    except SupervisorGoneError:
        seen.ending = Ending.LOST
    return seen.ending is Ending.CLOSED


def consume(
    lines: Iterable[Mapping[str, Any]], sink: Sink, past: Past, *, until_end: bool, since: int | None = None
) -> Seen:
    """Show the objects of a `follow` stream until it ends, or the loop does (`until_end`)."""
    seen = Seen()
    for line in lines:
        if "event" in line:
            _show(line["event"], sink, seen)
        elif "status" in line:
            if _told(line["status"], sink, seen, past, until_end=until_end, since=since):
                break
        elif "closed" in line:
            seen.ending, seen.reason = Ending.CLOSED, str(line["closed"])
            break
    if seen.last_seq is not None:  # what was written before the end and not sent any more
        for event in past(seen.last_seq):
            _show(event, sink, seen)
    if seen.status is not None and seen.ending is Ending.DONE:
        sink.status(seen.status)
    return seen


def _told(status: Status, sink: Sink, seen: Seen, past: Past, *, until_end: bool, since: int | None) -> bool:
    """Take over a status; True where it is the end that was waited for."""
    first = seen.status is None
    seen.status = dict(status)
    if first:
        _show_past(past, sink, seen, since, seen.status if until_end else None)
    if ended(seen.status):
        if until_end:
            seen.ending = Ending.DONE
            return True
        if seen.last_seq is not None:
            # How it came about stands above the word for it, here as at the end of a `start`.
            for event in past(seen.last_seq):
                _show(event, sink, seen)
    sink.status(seen.status)
    return False


def ended(status: Status) -> bool:
    """The loop has left waiting, queued and running (or there is none)."""
    loop = status.get("loop")
    return loop is None or loop["state"] not in ACTIVE


def _show(event: Mapping[str, Any], sink: Sink, seen: Seen) -> None:
    if event.get("type") not in EPHEMERAL:  # a live-only event has no place in the file
        seq = event.get("seq", 0)
        if seen.last_seq is not None and seq <= seen.last_seq:
            return
        seen.last_seq = seq
    sink.event(event)


def _show_past(past: Past, sink: Sink, seen: Seen, since: int | None, status: Status | None) -> None:
    """The stored events after `since`; else, with a status, those of its loop; else none."""
    loop = None if status is None else status.get("loop")
    if since is None and loop is None:
        return
    if loop is not None:
        sink.maximum(loop["maxIterations"])
    seen.last_seq = since or 0
    for event in past(seen.last_seq):
        # Instants of one form: their order as text is their order in time.
        if since is None and loop is not None and str(event["at"]) < loop["startedAt"]:
            seen.last_seq = event["seq"]
            continue
        _show(event, sink, seen)


def _tell_end(session: Session, sink: Sink, seen: Seen) -> None:
    """The session was closed or its supervisor died: say so, and read the truth from the files."""
    from loopsup import offline

    if seen.ending is Ending.CLOSED:
        sink.say(f"the session '{session.name}' was closed ({seen.reason})")
    else:
        sink.say(
            f"the supervisor of session '{session.name}' is gone without closing it; "
            f"`loopsup resume --session {session.name}` goes on"
        )
    seen.status = offline.status(session.refreshed(), alive=seen.ending is Ending.LOST and session.alive())
    sink.status(seen.status)


def _only_files(session: Session, sink: Sink, *, until_end: bool, since: int | None) -> dict[str, Any]:
    """The supervisor went before we could follow it."""
    from loopsup import offline
    from loopsup.store import eventlog

    now = session.refreshed()
    status = offline.status(now)
    _show_past(lambda after: eventlog.read(now.folder, after), sink, Seen(), since, status if until_end else None)
    sink.say(f"the supervisor of session '{session.name}' is gone")
    sink.status(status)
    sink.finish()
    return status
