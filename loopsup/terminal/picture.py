"""What stands on the program's screen: for the adapter to read, and to be drawn for who comes late.

Drawing costs a microsecond or two a byte, and a hundred at worst, so a program that floods its screen must not hold
the event loop: output is drawn in slices, each ended by the processor time it took, and of a long backlog only the
end is, as nobody could read the rest. Who comes late gets what is drawn, and behind it the bytes that are not, for
its own terminal to draw. Text read from here is plain: cells hold no control characters.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from loopsup.clock import processor_s
from loopsup.terminal.child import Size

SLICE_S = 0.05  # processor time of drawing at a stretch: a whole screen in colours, which is never seen half drawn
PIECE = 128  # bytes after which the time is looked at; the worst of them take as long as a slice
LAST = 4 * 1024  # bytes drawn of what a program leaves behind, at once: its last rows, for people
PAUSE_S = 0.002  # between two slices
MAX_BACKLOG = 256 * 1024  # bytes; more than a few screens full
KEPT_BACKLOG = 64 * 1024
MAX_SAVED = 16  # places of the cursor; most terminals know one
MAX_MARKS = 8  # on one character, more than any script has; each costs time in proportion to those before it
MAX_ROWS, MAX_COLS = 300, 500  # of the largest screens; what a client says is not believed beyond

_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")

_COLOURS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
_CODES = {name: number for number, name in enumerate(_COLOURS)}
_CODES |= {f"bright{name}": number + 60 for number, name in enumerate(_COLOURS)} | {"bfightmagenta": 65}


class Cursor(NamedTuple):
    """Where it stands, from 0."""

    row: int
    col: int


class Picture:
    """`changed` is called after drawing; `reply` gets what a terminal answers to the program's questions."""

    def __init__(self, size: Size, changed: Callable[[], None], reply: Callable[[bytes], object]) -> None:
        import pyte  # the extra `pty`

        columns_of = pyte.screens.wcwidth

        class Screen(pyte.Screen):  # type: ignore[misc,unused-ignore]  # pyte has no types, or is not there
            marks = 0  # on the last character

            def draw(self, data: str) -> None:
                """Without what takes no column (a variation selector, say): pyte leaves out all text behind it."""
                super().draw(data if data.isascii() else "".join(filter(self._takes, data)))

            def _takes(self, char: str) -> bool:
                if columns_of(char) > 0:
                    self.marks = 0
                    return True
                self.marks += 1
                return bool(unicodedata.combining(char)) and self.marks <= MAX_MARKS

            def erase_in_display(self, how: int = 0, *_: Any, **__: Any) -> None:
                """Row by row and not cell by cell: a program may do nothing else, on the largest of screens."""
                if how not in (0, 1, 2, 3):
                    return
                top = self.cursor.y + 1 if how == 0 else 0
                bottom = self.cursor.y if how == 1 else self.lines
                for number in range(top, bottom):
                    row = self.buffer[number]
                    row.clear()
                    row.default = self.cursor.attrs
                if how in (0, 1):
                    self.erase_in_line(how)

            def save_cursor(self) -> None:
                super().save_cursor()
                del self.savepoints[:-MAX_SAVED]

            def write_process_input(self, data: str) -> None:
                reply(data.encode("ascii", "ignore"))

        self._screen: Any = Screen(size.cols, size.rows)
        self._stream: Any = pyte.ByteStream(self._screen)
        self._changed = changed
        self._backlog = bytearray()
        self._lines: list[str] | None = None  # as long as nothing is drawn
        self._timer: asyncio.Handle | None = None
        self._now: Callable[[], float] = processor_s

    @property
    def current(self) -> bool:
        """Everything the program wrote has been drawn."""
        return not self._backlog

    @property
    def size(self) -> Size:
        return Size(self._screen.lines, self._screen.columns)

    @property
    def cursor(self) -> Cursor:
        # behind the last column it waits for the next character to wrap
        return Cursor(self._screen.cursor.y, min(self._screen.cursor.x, self._screen.columns - 1))

    def lines(self) -> list[str]:
        """The rows as text, without the blanks at their ends."""
        if self._lines is None:
            self._lines = [row.rstrip() for row in self._screen.display]
        return self._lines

    def feed(self, data: bytes) -> None:
        self._backlog += data
        if len(self._backlog) > MAX_BACKLOG:
            self._drop(KEPT_BACKLOG)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._draw)

    def resize(self, size: Size) -> None:
        """The rows from the top stay, or those above the cursor where they are too many."""
        screen, self._lines = self._screen, None
        row, col = self.cursor
        shift = max(0, row - size.rows + 1)
        kept = {number - shift: screen.buffer[number] for number in range(shift, screen.lines)}
        screen.resize(size.rows, size.cols)
        screen.buffer.clear()
        screen.buffer.update({number: cells for number, cells in kept.items() if number < size.rows})
        screen.cursor.y, screen.cursor.x = row - shift, min(col, size.cols - 1)

    def close(self) -> None:
        """Nothing more comes: draw the end of what is left."""
        if len(self._backlog) > LAST:
            self._drop(LAST)
        while self._backlog:
            self._piece()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def catch_up(self) -> None:
        """Draw what is left, as far as that goes in the time of one slice."""
        end = self._now() + SLICE_S
        while self._backlog:
            self._piece()
            if self._now() >= end:
                break

    def _draw(self) -> None:
        self._timer = None
        self.catch_up()
        if self._backlog:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._draw)
        self._changed()

    def _piece(self) -> None:
        self._lines = None
        end = self._piece_end()
        data = bytes(self._backlog[:end])
        del self._backlog[:end]
        try:
            self._stream.feed(data)
        except Exception:  # a sequence the parser cannot deal with must not end the session: it begins anew
            self._stream.__init__(self._screen)

    def _piece_end(self) -> int:
        """Where no sequence and no character is cut: what is not drawn yet must make sense to another terminal."""
        backlog = self._backlog
        if len(backlog) <= PIECE:
            return len(backlog)
        if (begin := backlog.rfind(b"\x1b", 1, PIECE)) > 0:
            return begin
        if (sequence := _SEQUENCE.match(backlog)) is not None and sequence.end() > PIECE:
            return sequence.end()
        follow = (back for back in range(4) if backlog[PIECE - back] & 0xC0 != 0x80)
        return PIECE - next(follow, 0)

    def _drop(self, kept: int) -> None:
        """All but the end; that begins with a sequence or a line, where there is one."""
        del self._backlog[:-kept]
        begins = [at for at in (self._backlog.find(b"\x1b"), self._backlog.find(b"\n")) if at >= 0]
        del self._backlog[: min(begins, default=0)]

    def rest(self) -> bytes:
        """What is not drawn yet."""
        return bytes(self._backlog)

    def dump(self) -> bytes:
        """Draws this picture on a terminal of its size (or a larger one)."""
        screen = self._screen
        out = ["\x1b[0m\x1b[r\x1b[2J"]
        for number in range(screen.lines):
            row = screen.buffer[number]
            if row or row.default != screen.default_char:
                out.append(f"\x1b[{number + 1};1H{_row(row, screen.columns)}\x1b[0m")
        if (margins := screen.margins) is not None:
            out.append(f"\x1b[{margins.top + 1};{margins.bottom + 1}r")
        cursor = screen.cursor
        out.append(f"\x1b[{cursor.y + 1};{cursor.x + 1}H")
        out.append("\x1b[?25l" if cursor.hidden else "\x1b[?25h")
        out.append(f"\x1b[0{_style(cursor.attrs)}m")  # for what comes next
        return "".join(out).encode("utf-8", "replace")


def _row(row: Any, columns: int) -> str:
    out, style = [], ""
    for number in range(columns):
        cell = row[number]
        now = _style(cell)
        if now != style:
            out.append(f"\x1b[0{now}m")
            style = now
        out.append(cell.data)
    return "".join(out)


def _style(cell: Any) -> str:
    """SGR parameters, each with its semicolon."""
    parts = [
        code
        for code, on in (
            (";1", cell.bold),
            (";3", cell.italics),
            (";4", cell.underscore),
            (";5", cell.blink),
            (";7", cell.reverse),
            (";9", cell.strikethrough),
        )
        if on
    ]
    return "".join(parts) + _colour(cell.fg, 30) + _colour(cell.bg, 40)


def _colour(name: str, base: int) -> str:
    if name == "default":
        return ""
    if name in _CODES:
        return f";{base + _CODES[name]}"
    try:
        red, green, blue = bytes.fromhex(name)
    except ValueError:
        return ""
    return f";{base + 8};2;{red};{green};{blue}"
