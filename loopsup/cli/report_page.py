"""The page of `loopsup report`: a pure function from statuses and rows to HTML.

Built as a tree, never by pasting text together: whatever a text has in it, the serialiser makes it harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from xml.etree import ElementTree as ET  # only writes; nothing is parsed

from loopsup.cli.history_missed import MissedRow
from loopsup.cli.history_notes import rhythm_words
from loopsup.cli.history_recoveries import recovery_words
from loopsup.cli.history_rows import IterationRow, LoopRow, NoteRow, Row
from loopsup.cli.missed_words import missed_words
from loopsup.cli.render import local_time, safe, span
from loopsup.cli.status_words import describe
from loopsup.core.durations import show as show_duration
from loopsup.wire.status import missed_object

WIDTH = 110  # columns of the status; what a window shows without scrolling
HEAD = ("#", "started", "took", "prompts", "calls", "outcome", "what it said")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # even a mistake of ours could fetch and run nothing
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
pre { background: #8881; padding: .8em; overflow-x: auto; white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25em .7em .25em 0; border-bottom: 1px solid #8883; }
td.note { color: #777; } td.said { white-space: pre-wrap; overflow-wrap: anywhere; } .number { text-align: right; }
.continue { color: #777; } .complete { color: #080; } .fail, .block, .error { color: #b00; font-weight: bold; }
:root { color-scheme: light dark; }
"""
PLAIN = frozenset({"continue", "complete", "fail", "block"})


def page(parts: Sequence[tuple[Mapping[str, Any], list[Row]]], now: int, zone: tzinfo | None) -> str:
    """The whole page. `parts`: the status object and the rows of each session; `now` in wall ms."""
    html = ET.Element("html", lang="en")
    head = ET.SubElement(html, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": POLICY})
    ET.SubElement(head, "meta", name="viewport", content="width=device-width")
    names = ", ".join(str(status["session"]["name"]) for status, _ in parts) or "no session"
    _add(head, "title", f"loopsup: {names}")
    _add(head, "style").text = STYLE
    body = ET.SubElement(html, "body")
    at = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone)
    _add(body, "p", f"loopsup report of {at:%Y-%m-%d %H:%M:%S} (times are {at.tzname()})", "note")
    if not parts:
        _add(body, "p", "There is no session on this machine.")
    for status, rows in parts:
        _session(body, status, rows, now, zone)
    text = ET.tostring(html, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n"


def _session(body: ET.Element, status: Mapping[str, Any], rows: list[Row], now: int, zone: tzinfo | None) -> None:
    _add(body, "h1", str(status["session"]["name"]))
    _add(body, "pre", describe(status, now, WIDTH, zone))
    table: ET.Element | None = None
    for row in rows:
        if isinstance(row, LoopRow):
            table = _loop(body, row, now, zone)
        elif table is not None:
            _row(ET.SubElement(table, "tr"), row, now, zone)
    if not rows:
        _add(body, "p", "No loop has run in it yet.")


def _loop(body: ET.Element, row: LoopRow, now: int, zone: tzinfo | None) -> ET.Element:
    """The heading of a loop; the table its rows go into."""
    _add(body, "h2", f"Loop {row.number}, {local_time(row.at, now, zone)}")
    limits = f"{show_duration(row.policy.for_ms)}, {row.policy.max_iterations} iterations at most"
    _add(body, "p", f"{rhythm_words(row.policy)}, {limits}")
    _add(body, "pre", row.objective)
    table = ET.SubElement(body, "table")
    _cells(ET.SubElement(ET.SubElement(table, "thead"), "tr"), HEAD, "th")
    return ET.SubElement(table, "tbody")


def _row(line: ET.Element, row: Row, now: int, zone: tzinfo | None) -> None:
    match row:
        case IterationRow():
            _iteration(line, row, now, zone)
        case MissedRow():
            _aside(line, row.at, missed_words(missed_object(row.missed), row.at, zone), now, zone)
        case NoteRow():
            _aside(line, row.at, row.text, now, zone)
        case LoopRow():
            raise AssertionError("a heading is no row")


def _iteration(line: ET.Element, row: IterationRow, now: int, zone: tzinfo | None) -> None:
    took = "" if row.took_ms is None else span(row.took_ms)
    _cells(line, (row.number, local_time(row.at, now, zone), took, row.prompts, row.calls))
    asides = [*(["after a reminder"] if row.reminder else []), *recovery_words(row.recoveries)]
    outcome = row.outcome + (f" ({', '.join(asides)})" if asides else "")
    _add(line, "td", outcome, row.outcome if row.outcome in PLAIN else "error")
    said = _add(line, "td", row.summary, "said")
    if row.evidence:
        details = ET.SubElement(said, "details")
        _add(details, "summary", "evidence")
        _add(details, "div", row.evidence)


def _aside(line: ET.Element, at: int, text: str, now: int, zone: tzinfo | None) -> None:
    _add(line, "td")
    _add(line, "td", local_time(at, now, zone), "note")
    _add(line, "td", text, "note").set("colspan", str(len(HEAD) - 2))


def _cells(line: ET.Element, texts: Iterable[object], tag: str = "td") -> None:
    for text in texts:
        _add(line, tag, str(text), "number" if isinstance(text, int) else None)


def _add(parent: ET.Element, tag: str, text: str = "", kind: str | None = None) -> ET.Element:
    """A child with this text, in which what no page may have is shown as an escape."""
    child = ET.SubElement(parent, tag) if kind is None else ET.SubElement(parent, tag, {"class": kind})
    child.text = safe(text, multiline=True)
    return child
