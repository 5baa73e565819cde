"""What an agent says as rows of a terminal. Broken here: the terminal itself would go on in the first column.

Rules: each row begins with the indentation of agent text, and none is wider than the terminal. Where terminals do not
agree how wide a character is, the widest counts: a row may be shorter than it could be, never longer. A tab becomes
spaces, because only then it is known where it ends.
"""

from __future__ import annotations

import unicodedata

from loopsup.cli.render import INDENT, char_columns

TAB = 8
MARKS = 8  # one after the other that stay with their character whatever the width; no script has more


class Rows:
    """Text that comes in pieces, each broken with regard to what stands before it."""

    def __init__(self) -> None:
        self._column = 0  # where the next character goes; 0: a new row
        self._marks = 0  # the last ones were no more than these

    @property
    def open(self) -> bool:
        """Something stands in the last row."""
        return self._column > 0

    def end(self) -> None:
        """What comes next stands in a row of its own."""
        self._column = 0

    def add(self, text: str, width: int) -> str:
        """Safe text, with the newlines and the indentation that make rows of it; the last row is not ended."""
        first, *more = text.split("\n")
        out = self._line(first, width)
        for line in more:
            self.end()
            out += ["\n", *self._line(line, width)]
        return "".join(out)

    def _line(self, rest: str, width: int) -> list[str]:
        out: list[str] = []
        while rest:
            if not self.open:
                out.append(INDENT)
                self._column, self._marks = len(INDENT), 0
            shown, rest = self._taken(rest, width)
            out.append(shown)
            if rest:
                out.append("\n")
                self.end()
        return out

    def _taken(self, line: str, width: int) -> tuple[str, str]:
        """What of it fits into this row, and the rest. Something always does in an empty one."""
        if line.isascii() and "\t" not in line:
            room = max(width - self._column, int(self._column == len(INDENT)))
            self._column += min(room, len(line))
            self._marks = 0
            return line[:room], line[room:]
        shown: list[str] = []
        for at, char in enumerate(line):
            size = self._size(char, width)
            if self._column + size > width and self._column > len(INDENT) and not 0 < self._marks <= MARKS:
                return "".join(shown), line[at:]
            shown.append(" " * size if char == "\t" else char)
            self._column += size
        return "".join(shown), ""

    def _size(self, char: str, width: int) -> int:
        if char == "\t":
            self._marks = 0
            return min(TAB - self._column % TAB, max(1, width - self._column))
        self._marks = self._marks + 1 if unicodedata.combining(char) else 0
        return max(1, char_columns(char))  # some terminals give a column to everything
