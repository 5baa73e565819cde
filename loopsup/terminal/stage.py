"""The program on its terminal with everybody around it: the adapter that drives it, and the people attached.

Rules. All see one screen, as large as the smallest of theirs; nobody attached: as large as it was. What a person
types goes to the program as it is, but never into the middle of a message the adapter hands over (`hold`). Who comes
late gets the picture. A viewer only gets bytes; who does not keep up is its own affair (`Seat.redraw`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loopsup.process import Ladder
from loopsup.terminal.child import TERMINAL_LADDER, Size, TerminalChild
from loopsup.terminal.keys import Draft, without_replies
from loopsup.terminal.modes import Modes
from loopsup.terminal.picture import MAX_COLS, MAX_ROWS, Picture

DEFAULT_SIZE = Size(40, 120)  # room for a TUI's side bars while nobody looks
SMALLEST = Size(4, 20)  # below this a TUI draws nothing that could be read
KIND = "xterm-256color"  # what the picture and every attached terminal understand


class Seat:
    """One attached terminal."""

    def __init__(self, stage: Stage, show: Callable[[bytes], None], size: Size) -> None:
        self._stage = stage
        self.show = show
        self.size = size

    def typed(self, data: bytes) -> None:
        """Keys of the person."""
        self._stage.typed(data)

    def resized(self, rows: int, cols: int) -> None:
        self.size = Size(rows, cols)
        self._stage.fit()

    def redraw(self) -> None:
        """The whole picture again."""
        self.show(self._stage.redrawn())

    def leave(self) -> None:
        self._stage.leave(self)


class Stage:
    """See `loopsup.terminal.contract.Stage`. `changed` is set whenever there may be something new to see."""

    def __init__(self, on_osc: Callable[[bytes], None] = lambda _: None) -> None:
        self._loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.draft = Draft()
        self.modes = Modes(on_osc)
        self.picture = Picture(DEFAULT_SIZE, self.changed.set, self._reply)
        self.child: TerminalChild | None = None
        self.last_output = self.last_touch = self._loop.time()
        self._seats: list[Seat] = []
        self._held: list[bytes] | None = None

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], ladder: Ladder = TERMINAL_LADDER
    ) -> TerminalChild:
        """Start the program. OSError."""
        environment = {**env, "TERM": KIND}
        for variable in ("LINES", "COLUMNS"):
            environment.pop(variable, None)
        self.child = await TerminalChild.spawn(
            argv, cwd=cwd, env=environment, size=self.picture.size, on_output=self._shown, ladder=ladder
        )
        return self.child

    @property
    def quiet_s(self) -> float:
        """How long the program has written nothing."""
        return self._loop.time() - self.last_output

    @property
    def untouched_s(self) -> float:
        """How long nobody has typed or changed the size."""
        return self._loop.time() - self.last_touch

    def write(self, data: bytes) -> bool:
        """Input from the adapter. False: the program does not take it."""
        return self.child is not None and self.child.write(data)

    def hold(self) -> None:
        """What people type waits until `release`."""
        self._held = []

    @property
    def typing(self) -> bool:
        """Something that was typed waits for `release`."""
        return bool(self._held)

    def release(self) -> None:
        held, self._held = self._held or [], None
        for data in held:
            self.typed(data)

    def join(self, show: Callable[[bytes], None], rows: int, cols: int) -> Seat:
        """A person attaches; the picture comes at once."""
        seat = Seat(self, show, Size(rows, cols))
        self._seats.append(seat)
        self.fit()
        seat.redraw()
        return seat

    def leave(self, seat: Seat) -> None:
        if seat in self._seats:
            self._seats.remove(seat)
            self.fit()

    def fit(self) -> None:
        """Everybody sees all of it."""
        if not self._seats or self.child is None:
            return
        rows = min(max(SMALLEST.rows, min(seat.size.rows, MAX_ROWS)) for seat in self._seats)
        cols = min(max(SMALLEST.cols, min(seat.size.cols, MAX_COLS)) for seat in self._seats)
        if (rows, cols) == self.picture.size:
            return
        self.last_touch = self._loop.time()
        self.picture.catch_up()  # what is left then is drawn in the new size, as on any terminal
        self.picture.resize(Size(rows, cols))
        self.child.resize(Size(rows, cols))
        for seat in self._seats:
            seat.redraw()

    def redrawn(self) -> bytes:
        self.picture.catch_up()
        return self.modes.on() + self.picture.dump() + self.picture.rest()

    def typed(self, data: bytes) -> None:
        keys = without_replies(data)
        if not keys:
            return
        if self._held is not None:
            self._held.append(keys)
            return
        self.last_touch = self._loop.time()
        if self.write(keys):
            self.draft.typed(keys)
        self.changed.set()

    def close(self) -> None:
        """The program is gone; the picture stays as it was."""
        self.picture.close()

    def _shown(self, data: bytes) -> None:
        self.last_output = self._loop.time()
        self.picture.feed(self.modes.feed(data))
        for seat in self._seats:
            seat.show(data)

    def _reply(self, data: bytes) -> None:
        self.write(data)
