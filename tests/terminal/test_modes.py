"""What a program switched on, and its output made fit for the picture, however it is cut."""

from __future__ import annotations

import pytest

from loopsup.terminal.modes import Modes

TUI = (
    b"\x1b]0;a title\x07\x1b[?1049h\x1b[?2004h\x1b[?1000;1006h\x1b[>1u\x1b[>4;2m\x1b[1;31mred\x1b[0m"
    b"\x1bP+q544e\x1b\\\x1b_Gi=1\x1b\\\x1b[4:3mcurly\x1b[38:2::1:2:3mrgb\x1b]7501;state=idle\x1b\\end"
)
DRAWN = b"\x1b7\x1b[2J\x1b[H\x1b[?2004h\x1b[?1000;1006h\x1b[1;31mred\x1b[0m\x1b[4mcurly\x1b[38;2;1;2;3mrgbend"


def test_what_the_picture_cannot_draw_is_left_out() -> None:
    told: list[bytes] = []
    modes = Modes(told.append)
    assert modes.feed(TUI) == DRAWN
    assert told == [b"0;a title", b"7501;state=idle"]
    assert modes.bracketed_paste


def test_it_may_be_cut_anywhere() -> None:
    for size in range(1, 12):
        told: list[bytes] = []
        modes = Modes(told.append)
        pieces = [TUI[at : at + size] for at in range(0, len(TUI), size)]
        assert b"".join(map(modes.feed, pieces)) == DRAWN, size
        assert told == [b"0;a title", b"7501;state=idle"], size


def test_who_comes_late_gets_the_modes_that_are_on() -> None:
    modes = Modes()
    modes.feed(TUI)
    assert modes.on() == b"\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[>1u\x1b[>4;2m"
    modes.feed(b"\x1b[?1000l\x1b[?1006;2004l\x1b[<u\x1b[>4m")
    assert modes.on() == b""
    assert not modes.bracketed_paste


@pytest.mark.parametrize("end", [b"\x1b", b"\x1b[", b"\x1b[?20", b"\x1b]0;tit", b"\x1bP+q"])
def test_a_sequence_that_never_ends_holds_nothing_back_but_itself(end: bytes) -> None:
    assert Modes().feed(b"text" + end) == b"text"


def test_the_alternate_screen_is_stood_in_for() -> None:
    modes = Modes()
    assert modes.feed(b"\x1b[?1049h") == b"\x1b7\x1b[2J\x1b[H"
    assert modes.feed(b"\x1b[?1049l") == b"\x1b[2J\x1b8"


@pytest.mark.parametrize("sequence", [b"\x1b[?%sh", b"\x1b[<%su", b"\x1b[>4;%sm"])
def test_a_number_without_end_is_no_number(sequence: bytes) -> None:
    assert Modes().feed(b"a" + sequence % (b"9" * 5000) + b"b").endswith(b"b")


def test_what_is_slow_to_draw_and_nothing_to_read_is_left_out() -> None:
    modes = Modes()
    assert modes.feed(b"a\x1b#8b\x1b[?5hc\x1b[?5;25ld") == b"abc\x1b[?25ld"
    modes.feed(b"\x1b[?5h")
    assert modes.on() == b"\x1b[?5h"
