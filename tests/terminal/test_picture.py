"""The picture of a screen, and its redrawing: drawn again on another one it is the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopsup.terminal.child import Size
from loopsup.terminal.picture import KEPT_BACKLOG, MAX_BACKLOG, MAX_MARKS, Picture

SIZE = Size(6, 24)


async def drawn(*pieces: bytes, size: Size = SIZE, reply: Any = lambda _: None) -> Picture:
    picture = Picture(size, lambda: None, reply)
    for piece in pieces:
        picture.feed(piece)
    picture.finish()
    picture.close()
    return picture


def cells(picture: Picture) -> list[list[Any]]:
    screen = picture._screen
    return [[screen.buffer[row][col] for col in range(screen.columns)] for row in range(screen.lines)]


@pytest.mark.parametrize(
    "output",
    [
        b"plain\r\ntext",
        b"\x1b[1;31mbold red\x1b[0m \x1b[3;4;7mall\x1b[0m\x1b[3;5H\x1b[38;5;208mcolour\x1b[48;2;1;2;3mtrue\x1b[0m",
        "wide 漢字 é 🔁 ─│┌".encode() + b"\x1b[?25l\x1b[2;3H",
        b"\x1b[92mbright\x1b[105mback\x1b[0m\x1b[6;24Hx",
        b"\x1b[2;4r\x1b[3;1Hinside",
    ],
)
def test_a_late_comer_sees_the_same(output: bytes) -> None:
    async def scenario() -> None:
        picture = await drawn(output)
        again = await drawn(b"something else\x1b[5;5H\x1b[31m", picture.dump())
        assert cells(again) == cells(picture)
        assert (again.cursor, again._screen.cursor.hidden) == (picture.cursor, picture._screen.cursor.hidden)
        assert again._screen.margins == picture._screen.margins

    asyncio.run(scenario())


def test_questions_of_the_program_are_answered() -> None:
    async def scenario() -> None:
        said: list[bytes] = []
        await drawn(b"ab\x1b[6n\x1b[c", reply=said.append)
        assert said == [b"\x1b[1;3R", b"\x1b[?6c"]

    asyncio.run(scenario())


def test_of_a_flood_the_end_is_drawn() -> None:
    async def scenario() -> None:
        picture = Picture(SIZE, lambda: None, lambda _: None)
        lines = b"".join(b"line %07d\r\n" % number for number in range(MAX_BACKLOG // 8))
        for at in range(0, len(lines), 65536):
            picture.feed(lines[at : at + 65536])
        assert len(picture._backlog) <= MAX_BACKLOG
        del picture._backlog[: -KEPT_BACKLOG // 16]  # the test need not wait for all of it
        picture.finish()
        picture.close()
        assert picture.lines()[-2] == f"line {MAX_BACKLOG // 8 - 1:07d}"

    asyncio.run(scenario())


def test_what_takes_no_column_hides_no_text() -> None:
    async def scenario() -> None:
        picture = await drawn("⚠\ufe0f Go on? [y/n]\r\na\u200bb\ufeffc \u202edef".encode())
        assert picture.lines()[:2] == ["⚠ Go on? [y/n]", "abc def"]

    asyncio.run(scenario())


def test_marks_without_end_on_one_character_are_not_kept() -> None:
    async def scenario() -> None:
        marks = "\u0334".encode()
        picture = await drawn(b"a" + marks * 100, b"\x1b[m" + marks * 100, b"b" + marks)
        assert picture.lines()[0] == "a" + "\u0334" * MAX_MARKS + "b\u0334"

    asyncio.run(scenario())
