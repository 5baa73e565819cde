"""Agent text on a terminal: nothing of it ever stands in the first column."""

from __future__ import annotations

import io
import os
import pty
import random
import termios
import unicodedata
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest

from loopsup.cli import render
from loopsup.cli.rows import MARKS, Rows
from loopsup.cli.screen import Screen
from tests.cli.reading import event

WIDTH = 20
FAKE = "x" * (WIDTH - 2) + "loopsup: the loop is completed"  # a terminal would break it before `loopsup:`


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def delta(text: str) -> dict[str, Any]:
    return event(0, "assistant.message_delta", {"text": text})


def whole(text: str) -> dict[str, Any]:
    return event(1, "assistant.message", {"turnId": "t", "text": text, "toolRequests": []})


def shown(*events: dict[str, Any], out: io.StringIO | None = None, width: int = WIDTH) -> str:
    stream = Terminal() if out is None else out
    screen = Screen(stream, colour=False, width=width, zone=UTC)
    for each in events:
        screen.event(each)
    screen.finish()
    return stream.getvalue()


IN_ROWS = f"  {'x' * (WIDTH - 2)}\n  loopsup: the loop \n  is completed\n"


@pytest.mark.parametrize(
    "events",
    [
        [whole(FAKE)],
        [delta(FAKE), whole(FAKE)],
        [*map(delta, FAKE), whole(FAKE)],
        [delta(FAKE[:WIDTH]), delta(FAKE[WIDTH:]), delta("\n"), whole(FAKE)],
        [event(1, "user.message", {"messageId": "m", "origin": "user", "text": FAKE})],
    ],
    ids=["whole", "at once", "in letters", "cut", "a message"],
)
def test_what_would_go_on_in_the_first_column_is_indented(events: list[dict[str, Any]]) -> None:
    told = shown(*events)
    assert told.endswith(IN_ROWS)
    assert told.removesuffix(IN_ROWS) in ("", "── you · 00:00:01 ──\n")


@pytest.mark.parametrize("events", [[whole(FAKE)], [*map(delta, FAKE), whole(FAKE)]])
def test_a_pipe_gets_every_line_whole(events: list[dict[str, Any]]) -> None:
    assert shown(*events, out=io.StringIO()) == f"  {FAKE}\n"


def test_a_summary_and_the_words_of_a_hook_are_indented_too() -> None:
    attention = {
        "status": "blocked",
        "iterationCount": 1,
        "maxIterations": 2,
        "calendarElapsedMs": 0,
        "summary": FAKE,
        "evidence": {"text": "y" * 40},
    }
    hook = {"path": "/h", "durationMs": 1, "exit": 1, "stderr": FAKE}
    told = shown(event(1, "loop.attention", attention), event(2, "loop.hook", hook)).split("\n")
    assert "loopsup" in "".join(told)
    assert not [line for line in told if line.startswith(("loopsup", "y"))]


def test_a_line_of_exactly_the_width_leaves_no_empty_row() -> None:
    full = "x" * (WIDTH - 2)
    assert shown(delta(full), delta("\n"), delta("y")) == f"  {full}\n  y\n"
    assert shown(whole(f"{full}\ny")) == f"  {full}\n  y\n"


def test_after_an_interruption_the_count_begins_anew() -> None:
    note = event(2, "loop.notice", {"message": "n"})
    assert shown(delta("x" * 15), note, delta("y" * 15)) == f"  {'x' * 15}\nnote: n\n  {'y' * 15}\n"


def rows(text: str, width: int, cut: Callable[[], int] = lambda: 10**6) -> list[str]:
    made, out = Rows(), ""
    while text:
        size = cut()
        out += made.add(text[:size], width)
        text = text[size:]
    return out.split("\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("日本語日本", ["  日本語", "  日本"]),
        ("a日本語日本", ["  a日本", "  語日本"]),
        ("\t日", ["        ", "  日"]),
        ("a\tbc", ["  a     ", "  bc"]),
        ("⚠\ufe0f⚠\ufe0f⚠\ufe0f.", ["  ⚠\ufe0f⚠\ufe0f⚠\ufe0f", "  ."]),
        ("\U0001f1e9\U0001f1ea\U0001f1e9\U0001f1ea", ["  \U0001f1e9\U0001f1ea\U0001f1e9", "  \U0001f1ea"]),
        ("\ue0b0\ue0b0\ue0b0\ue0b0", ["  \ue0b0\ue0b0\ue0b0", "  \ue0b0"]),
        ("e\u0301" * 4, ["  " + "e\u0301" * 3, "  e\u0301"]),
        ("abcdef\u0301g", ["  abcdef\u0301", "  g"]),
        ("abcdef\n\ng", ["  abcdef", "", "  g"]),
    ],
)
def test_columns_are_counted_as_the_widest_terminal_does(text: str, expected: list[str]) -> None:
    assert rows(text, 8) == expected
    assert rows(text, 8, lambda: 1) == expected


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 79])
def test_no_row_is_too_wide_however_the_text_is_cut(width: int) -> None:
    dice = random.Random(width)
    letters = "ab \t\n日🔁é\u0301\u0334\u200d\ufe0fक\ue000"
    text = "".join(dice.choice(letters) for _ in range(3000))
    broken = rows(text, width, lambda: dice.randint(1, 9))
    assert broken == rows(text, width)
    assert "".join("".join(broken).split()) == "".join(text.split())
    for row in broken:
        assert not row or row.startswith(render.INDENT)
        if width >= len(render.INDENT) + 2:
            assert render.columns(row) <= width


def test_marks_without_end_end_a_row_as_well() -> None:
    """An agent that sends nothing else keeps nobody's line open for ever."""
    made = rows("a" + "\u0334" * 10_000, WIDTH, lambda: 7)
    assert max(map(len, made)) <= WIDTH + MARKS
    assert sum(map(len, made)) == 10_001 + len(made) * len(render.INDENT)
    assert unicodedata.combining("\u0334")


def test_an_escape_is_as_wide_as_it_is_shown() -> None:
    class Plain(Terminal):
        encoding = "ascii"  # type: ignore[assignment]

    for events in ([whole("日" * 4)], [delta("日" * 4)]):
        told = shown(*events, out=Plain(), width=16).rstrip("\n").split("\n")
        assert told == ["  \\u65e5\\u65e5\\u", "  65e5\\u65e5"]


def test_a_sentence_of_ours_keeps_what_it_quotes_out_of_the_first_column() -> None:
    sentence = "loopsup: the agent ended: loopsup: all is well"
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        for columns, width in ((26, 26), (5, render.MIN_WIDTH)):
            termios.tcsetwinsize(master, (10, columns))
            first, *more = render.sentences(sentence, terminal).split("\n")
            assert more
            assert all(row.startswith(render.INDENT) and len(row) <= width for row in more)
            assert " ".join([first, *(row.removeprefix(render.INDENT) for row in more)]) == sentence
        termios.tcsetwinsize(master, (10, 26))
        assert render.sentences("  loopsup: what stands indented", terminal) == "  loopsup: what stands\n    indented"
        termios.tcsetwinsize(master, (0, 0))  # it does not say
        assert render.sentences(sentence, terminal) == sentence
    os.close(master)
    assert render.sentences(sentence, io.StringIO()) == sentence


def test_the_terminals_own_width_counts_where_columns_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "real_width", lambda: 30)
    for asked, width in (("200", 30), ("25", 25)):
        monkeypatch.setenv("COLUMNS", asked)
        assert render.terminal_width() == width


def test_an_answer_without_end_is_not_kept() -> None:
    screen = Screen(io.StringIO(), colour=False, width=WIDTH)
    screen.event(delta("x" * 1000))
    for _ in range(100):
        screen.event(delta("y" * 1000))
    held = {name: value for name, value in vars(screen).items() if isinstance(value, str | list | bytes)}
    assert held == {"_stopped": []}
    assert screen._streamed.was("x" * 1000 + "y" * 100_000)
    assert not screen._streamed.was("x" * 1000 + "y" * 99_999)
