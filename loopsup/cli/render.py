"""Text for people's terminals: what may be shown, and how wide.

Rules: whatever came from an agent passes `safe` before it is shown, so that nothing it wrote can move the
cursor, recolour, retitle, reorder or hide text; agent text is always indented, so that no line of it can be
taken for one of ours, which begin in the first column. Colour only on a terminal, never with NO_COLOR set.
The sentences themselves are in `headline.py`, `status_words.py` and `event_words.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, TextIO

from loopsup.clock import wall_ms
from loopsup.core.durations import show as show_duration
from loopsup.core.limits import DAY, MINUTE, SECOND
from loopsup.wire.times import parse_instant

# Kind of a recovery -> what was interrupted, and by what.
RECOVERIES = {
    "length": "output limit",
    "stream": "broken answer",
    "empty": "empty answer",
    "tool_tail": "ended on a tool",
    "usage_limit": "usage limit",
    "usage_poll": "usage limit without a time",
}
INDENT = "  "
MIN_WIDTH = 20  # below this a terminal shows nothing readable anyway; a width of 0 means "unknown"
UNCUT = 2000  # columns for a file or a pipe: somebody may search it, and no line gets absurd

# C0, DEL and C1; the bidirectional marks, overrides and isolates; line and paragraph separators; invisible
# joiners, annotations and tags; lone surrogates (no terminal encoding has them). U+200C and U+200D stay:
# Persian and emoji need them and they move nothing.
_LIVE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_LIVE_BUT_LINES = re.compile(_LIVE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

# Our own signs, for terminals that cannot show them.
_PLAIN_SIGNS = str.maketrans({"─": "-", "━": "=", "·": "-", "…": "...", "→": "->", "▸": ">", "—": "-", "’": "'"})

_FLAGS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))  # letters that make flags: some terminals show each by itself
_COLOURS = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "1;33", "cyan": "36"}


def safe(text: object, *, multiline: bool = False) -> str:
    r"""`text` with every live control character shown as its escape (`\x1b`, `\u202e`).

    `multiline` keeps newlines and tabs (CR LF becomes LF); without it they are shown as escapes as well.
    Values that are no strings are shown as Python shows them.
    """
    shown = text if isinstance(text, str) else str(text)
    if multiline:
        return _LIVE_BUT_LINES.sub(_escape, shown.replace("\r\n", "\n"))
    return _LIVE.sub(_escape, shown)


def one_line(text: object, width: int) -> str:
    """`text` made safe, on one line, runs of white space as one space, cut to `width` columns with `…`."""
    # Far more characters than columns cannot be needed; the cut keeps huge texts cheap.
    whole = str(text)
    head = whole[: 16 * max(width, 1)]
    return fit(safe(" ".join(head.split())), width, more=len(head) < len(whole))


def fit(line: str, width: int, *, more: bool = False) -> str:
    """A safe line cut to `width` columns with `…`. `more`: it goes on after what is given."""
    if columns(line) <= width and not more:
        return line
    kept, used = [], 0
    for char in line:
        used += char_columns(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def wrap(text: str, width: int, *, after: str = "") -> list[str]:
    """A safe line as lines of at most `width` columns, broken at spaces; the later ones behind `after`."""
    lines, line = [], ""
    for word in text.split(" "):
        before = f"{line} " if line else ""
        if line.strip() and columns(before + word) > width:
            lines.append(line)
            before = after
        line = before + word
        while columns(line) > width:  # a word longer than a line is cut
            head = _columns_of(line, width)
            lines.append(head)
            line = after + line[len(head) :]
    return [*lines, line]


def _columns_of(line: str, width: int) -> str:
    used = 0
    for at, char in enumerate(line):
        used += char_columns(char)
        if used > width:
            return line[: max(at, 1)]
    return line


def columns(text: str) -> int:
    """How many terminal columns `text` takes."""
    return len(text) if text.isascii() else sum(map(char_columns, text))


def pad(text: str, width: int) -> str:
    """`text` filled with spaces to `width` columns."""
    return text + " " * (width - columns(text))


def indent(text: object, prefix: str = INDENT) -> str:
    """Agent text of several lines, made safe, each line behind `prefix`."""
    return "\n".join(prefix + line for line in safe(text, multiline=True).strip("\n").split("\n"))


def terminal_width() -> int:
    """Columns of the terminal (or $COLUMNS, if less), never less than `MIN_WIDTH`; `UNCUT` where there is none."""
    asked = shutil.get_terminal_size((UNCUT, 24)).columns
    return max(MIN_WIDTH, min(asked, real_width() or asked))


def real_width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal that `stream` (else standard output) is; None where it is none, or does not say."""
    try:
        return os.get_terminal_size((stream or sys.__stdout__).fileno()).columns or None  # type: ignore[union-attr]  # None is an AttributeError
    except (AttributeError, ValueError, OSError):
        return None


def sentences(text: str, stream: TextIO) -> str:
    """Safe lines of ours for `stream`, broken for a terminal: what they quote stays out of its first column."""
    width = real_width(stream)
    if width is None:
        return text
    rows: list[str] = []
    for line in encodable(text, stream).split("\n"):
        words = line.lstrip(" ")
        before = line[: min(len(line) - len(words), width // 2)]
        rows += [before + row for row in wrap(words, max(width - len(before), MIN_WIDTH), after=INDENT)]
    return "\n".join(rows)


def colour_wanted(stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """True on a terminal that is not `dumb`, unless NO_COLOR is set to anything."""
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def paint(text: str, colour: str | None, on: bool) -> str:
    """`text` in one of our colours, line by line, or as it is."""
    if not on or colour is None or not text:
        return text
    code = _COLOURS[colour]
    return "\n".join(f"\x1b[{code}m{line}\x1b[0m" if line else line for line in text.split("\n"))


def write(text: str, *, end: str = "\n", stream: TextIO | None = None, flush: bool = False) -> None:
    """Print `text`, whatever the stream can encode: other characters as escapes, never an error."""
    out = sys.stdout if stream is None else stream
    out.write(encodable(text, out) + end)
    if flush:
        out.flush()


def encodable(text: str, stream: TextIO) -> str:
    """`text` as `stream` shows it: what it cannot encode as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN_SIGNS).encode(encoding, "backslashreplace").decode(encoding)
    return text


def span(ms: int) -> str:
    """A duration for people: the seconds are left out where they do not matter."""
    for unit, above in ((MINUTE, 10 * MINUTE), (60 * MINUTE, 2 * DAY)):
        if ms >= above:
            ms -= ms % unit
    return show_duration(ms)


def wait_span(ms: int) -> str:
    """How long until then, for people: a started second counts."""
    return span(ms + SECOND - 1)


def local_time(at: str | int, now_ms: int, zone: tzinfo | None = None) -> str:
    """A wall instant in local time: `14:32:07` today, with the date on any other day."""
    at_ms = at if isinstance(at, int) else parse_instant(at)
    then, today = (datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone) for ms in (at_ms, now_ms))
    return f"{then:%H:%M:%S}" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M:%S}"


def now_ms() -> int:
    """The wall clock, for "in how long"."""
    return wall_ms()


def status_text(
    status: Mapping[str, Any], *, now: int | None = None, width: int | None = None, zone: tzinfo | None = None
) -> str:
    """The status object for people; `now` in milliseconds, `zone` None for local time."""
    from loopsup.cli.status_words import describe

    return describe(status, now_ms() if now is None else now, terminal_width() if width is None else width, zone)


def event_text(
    event: Mapping[str, Any],
    *,
    max_iterations: int | None = None,
    width: int | None = None,
    zone: tzinfo | None = None,
) -> str | None:
    """One event for people, None for those a person need not see."""
    from loopsup.cli.event_words import describe

    return describe(event, max_iterations, terminal_width() if width is None else width, zone)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=4096)  # of a conversation's alphabet
def char_columns(char: str) -> int:
    """Columns of one character: the most that a terminal gives it."""
    if unicodedata.combining(char) or char in "\u200c\u200d\ufe0e":
        return 0
    if char == "\ufe0f":  # makes what stands before it a picture, of two columns
        return 1
    if unicodedata.east_asian_width(char) in "WF" or char in _FLAGS or unicodedata.category(char) in ("Co", "Cn"):
        return 2  # newer than our tables, or a font's own sign: nobody can tell
    return 1
