"""The modes a program has switched on in its terminal, and its output made fit for the picture.

The picture's own parser takes some newer sequences for text and knows no alternate screen: `Modes.feed` leaves out
the ones and stands in for the other. What was switched on is kept, to be switched on at a terminal that comes later
(`on`), and off at one that leaves. A sequence may be cut anywhere between two reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable

BRACKETED_PASTE = 2004
REVERSED = 5  # the whole screen; nothing to read, and slow to draw: for the terminals alone
ALTERNATE_SCREEN = frozenset({47, 1047, 1049})
# What changes how a terminal behaves for the person: keys, wheel, mouse, focus, paste, screen, colour reports.
KEPT = frozenset(
    {1, REVERSED, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2031, *ALTERNATE_SCREEN}
)
MAX_TAIL = 64 * 1024  # a sequence longer than this (an image, say) is dropped
MAX_STACK = 16  # levels of the keyboard protocol; programs use one

_WHOLE = (
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    rb"|[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    rb"|(?![\[\]PX^_])[ -/]*[0-~])"  # the short ones
)
_CUT = rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z"
_SEQUENCE = re.compile(rb"(" + _WHOLE + rb")|(" + _CUT + rb")")
_PRIVATE = re.compile(rb"\x1b\[\?((?:[0-9]{0,9};)*[0-9]{0,9})([hl])\Z")
_KEYBOARD = re.compile(rb"\x1b\[([<>=])([0-9]{0,9})(?:;[0-9]*)?u\Z")
_OTHER_KEYS = re.compile(rb"\x1b\[>4(?:;([0-9]+))?m\Z")


class Modes:
    """Fed with everything the program writes. `on_osc` gets the body of each operating system command."""

    def __init__(self, on_osc: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_osc = on_osc
        self._tail = b""
        self._private: set[int] = set()
        self._keyboard: list[bytes] = []
        self._other_keys = b""
        self._keypad = False

    @property
    def bracketed_paste(self) -> bool:
        return BRACKETED_PASTE in self._private

    def feed(self, data: bytes) -> bytes:
        """What of it the picture can draw."""
        data, self._tail = self._tail + data, b""
        return _SEQUENCE.sub(self._sequence, data)

    def on(self) -> bytes:
        """Switches a fresh terminal to these modes."""
        out = [b"\x1b[?%dh" % mode for mode in sorted(self._private - ALTERNATE_SCREEN)]
        out += [b"\x1b[>%su" % flags for flags in self._keyboard]
        if self._other_keys not in (b"", b"0"):
            out.append(b"\x1b[>4;%sm" % self._other_keys)
        if self._keypad:
            out.append(b"\x1b=")
        return b"".join(out)

    def _sequence(self, found: re.Match[bytes]) -> bytes:
        whole, cut = found.groups()
        if whole is None:
            self._tail = cut[-MAX_TAIL:] if len(cut) <= MAX_TAIL else b""
            return b""
        return self._keep(whole)

    def _keep(self, sequence: bytes) -> bytes:
        second = sequence[1:2]
        if second == b"]":
            self._on_osc(sequence[2:].rstrip(b"\x07").removesuffix(b"\x1b\\"))
            return b""
        if second in b"PX^_":
            return b""
        if second == b"[":
            return self._control(sequence)
        if second == b"#":  # a test picture: nothing to read, and slow to draw
            return b""
        if second in (b"=", b">"):
            self._keypad = second == b"="
            return b""
        return sequence

    def _control(self, sequence: bytes) -> bytes:
        if private := _PRIVATE.match(sequence):
            return self._switch(sequence, private)
        if sequence[2:3] in (b"<", b"=", b">"):
            self._keys(sequence)
            return b""
        if sequence.endswith(b"m") and b":" in sequence:
            return _plain_colours(sequence)
        return sequence

    def _switch(self, sequence: bytes, private: re.Match[bytes]) -> bytes:
        numbers = {int(part) for part in private[1].split(b";") if part}
        switched_on = private[2] == b"h"
        self._private = self._private | (numbers & KEPT) if switched_on else self._private - numbers
        if numbers & ALTERNATE_SCREEN:
            return b"\x1b7\x1b[2J\x1b[H" if switched_on else b"\x1b[2J\x1b8"
        if REVERSED in numbers:
            return b"".join(b"\x1b[?%d%s" % (number, private[2]) for number in sorted(numbers - {REVERSED}))
        return sequence

    def _keys(self, sequence: bytes) -> None:
        if keyboard := _KEYBOARD.match(sequence):
            how, flags = keyboard[1], keyboard[2]
            if how == b"<":
                count = int(flags or b"1")
                del self._keyboard[max(0, len(self._keyboard) - count) :]
            elif how == b">":
                self._keyboard = [*self._keyboard, flags or b"0"][-MAX_STACK:]
            else:
                self._keyboard = [*self._keyboard[:-1], flags or b"0"]
        elif other := _OTHER_KEYS.match(sequence):
            self._other_keys = other[1] or b""


def _plain_colours(sequence: bytes) -> bytes:
    """`4:3` (a curly underline) and `38:2::r:g:b` in their older forms."""
    sequence = re.sub(rb"(?<![0-9:])4:[0-9]", b"4", sequence)
    sequence = re.sub(rb"([345]8):2:[0-9]*:", rb"\1;2;", sequence)
    return sequence.replace(b":", b";")
