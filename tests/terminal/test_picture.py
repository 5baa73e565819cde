"""The picture of a screen, and its redrawing: drawn again on another one it is the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopsup.terminal.child import Size
from loopsup.terminal.picture import LAST, MAX_BACKLOG, MAX_MARKS, MAX_SAVED, PIECE, Picture
from loopsup.terminal.stage import Stage

SIZE = Size(6, 24)


async def drawn(*pieces: bytes, size: Size = SIZE, reply: Any = lambda _: None) -> Picture:
    picture = Picture(size, lambda: None, reply)
    for piece in pieces:
        picture.feed(piece)
        while not picture.current:
            picture.catch_up()
    picture.close()
    return picture


class Ticking:
    """A clock that moves on whenever it is looked at: each look ends a slice."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


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
        picture.close()  # the test need not wait for all of it
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


@pytest.mark.parametrize(
    "output",
    [
        b"\x1b[1;31mred \x1b[44mon blue\x1b[0m plain \x1b[2;3H\x1b[K" * 20,
        "漢字 é 🔁 ─│┌".encode() * 60,
        b"\x1b[" + b"1;" * PIECE + b"31mlong" + b"x" * PIECE + b"\x1b[0m\r\nend",
        b"\x1b[44m\x1b[2J\x1b[0mx" * 40,
        b"x" * 3 * PIECE,
    ],
    ids=["colours", "wide", "long sequence", "coloured screen", "plain"],
)
def test_who_comes_in_the_middle_of_the_drawing_sees_the_same(output: bytes) -> None:
    """What is drawn and what is not: the two make the whole picture, wherever the drawing stands."""

    async def scenario() -> None:
        whole = await drawn(output)
        picture = Picture(SIZE, lambda: None, lambda _: None)
        picture._now = Ticking()
        picture.feed(output)
        looks = 0
        while not picture.current:
            picture.catch_up()
            late = await drawn(picture.dump(), picture.rest())
            assert late.lines() == whole.lines()
            assert cells(late) == cells(whole)
            looks += 1
        assert looks > 3 * len(output) // PIECE // 8
        picture.close()

    asyncio.run(scenario())


def test_nobody_waits_for_a_flood_to_be_drawn() -> None:
    """Each look at the clock ends a slice here, so that a slice is one piece, whatever asks for the picture."""

    async def scenario() -> None:
        stage = Stage()
        stage.picture._now = Ticking()
        flood = b"\x1b[44m\x1b[2Jx" * (MAX_BACKLOG // 16)
        stage.picture.feed(flood)
        got: list[bytes] = []
        stage.join(got.append, 30, 100)
        assert len(stage.picture.rest()) >= len(flood) - PIECE
        assert got[0].endswith(stage.picture.rest())
        await asyncio.sleep(0)  # the loop runs in between
        left = len(stage.picture.rest())
        assert len(flood) - 4 * PIECE <= left < len(flood)
        stage.close()
        assert stage.picture.current

    asyncio.run(scenario())


def test_of_what_a_program_leaves_behind_the_end_is_drawn() -> None:
    async def scenario() -> None:
        picture = Picture(SIZE, lambda: None, lambda _: None)
        picture.feed(b"".join(b"\x1b[3%dmline %07d\x1b[0m\r\n" % (number % 8, number) for number in range(LAST // 8)))
        picture.close()
        assert picture.current
        assert picture.lines() == [*(f"line {number:07d}" for number in range(LAST // 8 - 5, LAST // 8)), ""]

    asyncio.run(scenario())


def test_a_screen_is_erased_row_by_row_and_in_its_colour() -> None:
    async def scenario() -> None:
        picture = await drawn(b"one\r\ntwo\r\nthree\x1b[2;2H\x1b[44m\x1b[J\x1b[0m\x1b[1J!")
        assert picture.lines() == ["", " !", "", "", "", ""]
        assert [cells(picture)[row][5].bg for row in range(3)] == ["default", "blue", "blue"]
        assert sum(map(len, picture._screen.buffer.values())) <= 2 * SIZE.cols
        same = await drawn(b"text\x1b[9J\x1b[?2;1J")
        assert same.lines()[0] == ""

    asyncio.run(scenario())


def test_places_that_are_saved_without_end_are_not_kept() -> None:
    async def scenario() -> None:
        picture = await drawn(b"ab\x1b7" * 1000 + b"\x1b[1;1H\x1b8!")
        assert len(picture._screen.savepoints) < MAX_SAVED
        assert any(line.endswith("!") for line in picture.lines())

    asyncio.run(scenario())
