"""What a person types at an attached terminal: whether it leaves something unsent on the program's input line.

Terminals also answer on the same wire: to questions of the program, and about focus and the mouse. The picture
answers the questions itself, once, whoever is attached, so the answers of the person's terminals are dropped.
"""

from __future__ import annotations

import re

_REPLIES = re.compile(
    rb"\x1b\[[?>=][0-9;]*(?:c|u|\$y|n)"  # device attributes, keyboard flags, modes, status
    rb"|\x1b\[[0-9]+;[0-9]+R"  # where the cursor is
    rb"|\x1b\[[0-9;]+t"  # the window
    rb"|\x1b\][0-9]+;[^\x07\x1b]*(?:\x07|\x1b\\)"  # colours
    rb"|\x1b[P_][^\x1b]*\x1b\\"
)
_NOT_EDITING = re.compile(rb"\x1b\[[IO]|\x1b\[<[0-9;]+[Mm]|\x1b\[M...|\x1b\[(?:[ABCDHF]|[56]~)", re.DOTALL)
_PASTE = re.compile(rb"\x1b\[200~.*?(?:\x1b\[201~|\Z)", re.DOTALL)
_CLEARING = (b"\r", b"\n", b"\x03", b"\x15")  # Enter, Ctrl-C, Ctrl-U
_MORE_LINES = (b"\x1b\r", b"\x1b\n", b"\\\r")  # a new line in the draft


def without_replies(data: bytes) -> bytes:
    """The keys alone."""
    return _REPLIES.sub(b"", data)


class Draft:
    """`touched`: keys that edit came since `rest`. `open`: the last of them did not send or clear the line."""

    def __init__(self) -> None:
        self.touched = False
        self.open = False

    def typed(self, keys: bytes) -> None:
        # The arrows may bring an older line back; then the screen shows it.
        if not keys:
            return
        editing = _NOT_EDITING.sub(b"", _PASTE.sub(b"p", keys))
        if re.search(rb"\x1b\[[AB]", keys):
            self.touched = True
        if editing:
            self.touched = True
            self.open = not editing.endswith(_CLEARING) or editing.endswith(_MORE_LINES)

    def rest(self) -> None:
        """The line is known to be empty."""
        self.touched = self.open = False
