"""`loopsup history`: one line for each iteration of the session's loops, from the journal.

Reads the files only, so it works with and without a supervisor. Damaged lines of the journal are skipped
and told on standard error; the rest is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from loopsup.cli import render, selection
from loopsup.cli.common import JsonLinesOption, SessionOption, note, out_json
from loopsup.cli.history_missed import MissedRow
from loopsup.cli.history_notes import rhythm_words
from loopsup.cli.history_recoveries import Recovered, recovered, recovery_words
from loopsup.cli.history_rows import (
    History,
    IterationRow,
    LoopRow,
    NoteRow,
    Row,
    reduce,
)
from loopsup.cli.missed_words import missed_words
from loopsup.core.durations import show as show_duration
from loopsup.core.misfire import word
from loopsup.core.model import Auto
from loopsup.errors import EXIT_DONE
from loopsup.wire.events import CONTINUITY_RECOVERY
from loopsup.wire.status import missed_object
from loopsup.wire.times import instant

WIDE = 60  # columns; below this the counts go, and every outcome has a line of its own
UNDER = 4 * " "
TOLD = 3  # damaged lines named one by one; beyond that their number says enough


def history(session: SessionOption = None, as_json: JsonLinesOption = False) -> int:
    """Show what happened to each iteration."""
    from loopsup.store import eventlog, journal

    found = selection.pick(session)
    past = reduce(journal.read_all(found.folder), alive=found.alive())
    rows = with_recoveries(past.rows, recovered(eventlog.read(found.folder, only=CONTINUITY_RECOVERY)))
    if as_json:
        for row in rows:
            out_json(row_object(row))
    else:
        for line in text_lines(rows, render.now_ms(), render.terminal_width(), None):
            render.write(line)
    for sentence in damage(past):
        note(sentence)
    return EXIT_DONE


def with_recoveries(rows: list[Row], found: Iterable[Recovered]) -> list[Row]:
    """The rows, each iteration with the recoveries of its time."""
    left = list(found)

    def during(row: IterationRow) -> tuple[Recovered, ...]:
        end = None if row.took_ms is None else row.at + row.took_ms
        return tuple(each for each in left if row.at <= each.at and (end is None or each.at <= end))

    return [replace(row, recoveries=during(row)) if isinstance(row, IterationRow) else row for row in rows]


def damage(past: History) -> Iterator[str]:
    """What to say about lines that could not be read."""
    for line in past.damaged[:TOLD]:
        yield render.safe(
            f"warning: a damaged line of the journal was skipped (at byte {line.offset}: {line.reason})"
        )
    if len(past.damaged) > TOLD:
        yield f"warning: {len(past.damaged)} damaged lines of the journal were skipped in all"


def text_lines(rows: list[Row], now: int, width: int, zone: tzinfo | None) -> Iterator[str]:
    """The page for people, line by line."""
    if not rows:
        yield "no loop yet; `loopsup start` gives this session one"
    for number, row in enumerate(rows):
        match row:
            case LoopRow():
                if number > 0:
                    yield ""
                at = render.local_time(row.at, now, zone)
                limits = f"{show_duration(row.policy.for_ms)}, {row.policy.max_iterations} iterations at most"
                heading = f"loop {row.number}, {at}: {rhythm_words(row.policy)}, {limits}"
                yield from render.wrap(heading, width, after=render.INDENT)
                yield render.INDENT + render.one_line(row.objective, width - len(render.INDENT))
                if width >= WIDE:
                    yield f"{'#':>4}  {'started':19}  {'took':>6}  {'prompts':>7}  {'calls':>5}"
            case IterationRow():
                yield _iteration_line(row, now, width, zone)
            case MissedRow():
                at = render.local_time(row.at, now, zone)
                text = missed_words(missed_object(row.missed), row.at, zone)
                yield _fit(f"      {at:19}  " if width >= WIDE else f"    {at}", text, width)
            case NoteRow():
                at = render.local_time(row.at, now, zone)
                yield _fit(f"      {at:19}  " if width >= WIDE else f"    {at}", row.text, width)


def _iteration_line(row: IterationRow, now: int, width: int, zone: tzinfo | None) -> str:
    took = "" if row.took_ms is None else render.span(row.took_ms)
    at = render.local_time(row.at, now, zone)
    if width >= WIDE:
        head = f"{row.number:>4}  {at:19}  {took:>6}  {row.prompts:>7}  {row.calls:>5}  "
    else:
        head = f"{row.number:>3} {at} {took}"
    asides = ["after a reminder"] if row.reminder else []
    if row.failed_tries:
        asides.append(f"{row.failed_tries} failed {'try' if row.failed_tries == 1 else 'tries'}")
    asides += recovery_words(row.recoveries)
    outcome = row.outcome + (f" ({', '.join(asides)})" if asides else "")
    return _fit(head, f"{outcome}: {row.summary}" if row.summary else outcome, width)


def _fit(head: str, text: str, width: int) -> str:
    """On a narrow terminal the words get a line of their own rather than nothing."""
    room = width - len(head)
    if width >= WIDE and room >= render.MIN_WIDTH:
        return head + render.one_line(text, room)
    return f"{render.fit(head.rstrip(), width)}\n{UNDER}{render.one_line(text, width - len(UNDER))}"


def row_object(row: Row) -> dict[str, Any]:
    """The row as JSON."""
    match row:
        case LoopRow():
            policy = row.policy
            return {
                "type": "loop",
                "number": row.number,
                "loopId": row.loop_id,
                "at": instant(row.at),
                "objective": row.objective,
                "everyMs": None if isinstance(policy.rhythm, Auto) else policy.rhythm.every_ms,
                "minDelayMs": policy.min_delay_ms,
                "maxDelayMs": policy.max_delay_ms,
                "forMs": policy.for_ms,
                "maxIterations": policy.max_iterations,
                "misfire": word(policy.misfire),
            }
        case IterationRow():
            return {
                "type": "iteration",
                "iteration": row.number,
                "at": instant(row.at),
                "outcome": row.outcome.replace(" ", "_"),
                "durationMs": row.took_ms,
                "promptsSent": row.prompts,
                "llmCalls": row.calls,
                "reminder": row.reminder,
                "failedTries": row.failed_tries,
                "summary": row.summary,
                "recoveries": [
                    {"at": instant(each.at), "kind": each.kind, "waitMs": each.wait_ms} for each in row.recoveries
                ],
            }
        case MissedRow():
            return row.as_json()
        case NoteRow():
            return {"type": "note", "at": instant(row.at), "what": row.what, "text": row.text}
