"""A viewer of the agent's own screen, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loopsup.shell.gallery import ABSENT, MAX_BEHIND, Viewer
from loopsup.terminal.contract import Seat
from loopsup.wire import terminal
from loopsup.wire.terminal import Absent, Output


class Screen:
    """A stage that shows `picture` to who joins."""

    def __init__(self, picture: bytes) -> None:
        self.picture = picture
        self.show: Callable[[bytes], None] = lambda _: None

    def join(self, show: Callable[[bytes], None], rows: int, cols: int) -> Seat:
        self.show = show
        show(self.picture)
        return self

    def typed(self, data: bytes) -> None:
        pass

    def resized(self, rows: int, cols: int) -> None:
        pass

    def redraw(self) -> None:
        self.show(self.picture)

    def leave(self) -> None:
        pass


def test_who_was_behind_when_the_program_ended_sees_the_next_one() -> None:
    async def scenario() -> None:
        viewer, flood = Viewer(24, 80), Screen(b"f" * (MAX_BEHIND + 1))
        viewer.place(flood)
        viewer.place(None)
        lines = [terminal.from_supervisor(line) for line in (await viewer.next()).splitlines()]
        assert lines == [Output(flood.picture), Absent(ABSENT)]
        viewer.place(Screen(b"next"))
        told = await asyncio.wait_for(viewer.next(), 60)
        assert terminal.from_supervisor(told) == Output(b"next")

    asyncio.run(scenario())
