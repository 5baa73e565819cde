"""The screen of `loopsup top`, by prompt_toolkit; it gives the terminal back as it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output

from loopsup.cli import render, top
from loopsup.clock import supervisors_clock
from loopsup.errors import LoopsupError

LOOK_S = 2.0  # between two looks: each asks all supervisors, which costs every one of them a millisecond
REFRESH_S = 1.0  # the countdowns have seconds
KEYS = "q leaves, up and down scroll"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Status = Mapping[str, Any]


def run(look: Callable[[], Sequence[Status]]) -> None:
    """Until somebody leaves. `look` gives the sessions, and may take its time. LoopsupError of its first look."""
    asyncio.run(_View(look, look()).run())


class _View:
    def __init__(self, look: Callable[[], Sequence[Status]], found: Sequence[Status]) -> None:
        self._look, self._found = look, found
        self._trouble = ""
        self._scrolled = 0
        self._clock = supervisors_clock(os.environ)
        head = Window(FormattedTextControl(self._heading), height=1, style="reverse")
        body = Window(FormattedTextControl(self._body))
        output = Vt100_Output.from_pty(sys.stdout)
        output.enable_cpr = False  # a terminal that does not say where its cursor is would be waited for
        self._app: Application[None] = Application(
            layout=Layout(HSplit([head, body])),
            key_bindings=self._keys(),
            full_screen=True,
            refresh_interval=REFRESH_S,
            output=output,
        )

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave)
        looking = loop.create_task(self._keep_looking())
        try:
            with contextlib.suppress(EOFError, OSError):  # the terminal is gone
                await self._app.run_async(handle_sigint=False)
        finally:
            looking.cancel()

    async def _keep_looking(self) -> None:
        """In a thread, so that a supervisor that does not answer freezes no key."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._found, self._trouble = await asyncio.to_thread(self._look), ""
            except LoopsupError as error:
                self._trouble = error.message
            self._app.invalidate()

    # ---- what is drawn ----------------------------------------------------------------------------------

    def _heading(self) -> str:
        text = f"loopsup: {self._trouble or top.heading(self._found)}"
        width = self._width()
        room = width - len(KEYS) - 2
        text = render.one_line(text, room if room >= render.MIN_WIDTH else width)
        return render.pad(text, max(0, room)) + "  " + KEYS if room >= render.MIN_WIDTH else text

    def _body(self) -> str:
        lines = top.text_lines(self._found, self._clock.now().wall, self._width(), None)
        self._scrolled = max(0, min(self._scrolled, len(lines) - 1))
        return render.encodable("\n".join(lines[self._scrolled :]), sys.stdout)

    def _width(self) -> int:
        return max(render.MIN_WIDTH, self._app.output.get_size().columns)

    # ---- what is typed ----------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for name in ("q", "c-c", "c-d"):
            keys.add(name)(lambda _: self._leave())
        for name, by in (("up", -1), ("down", 1), ("pageup", -10), ("pagedown", 10)):
            keys.add(name)(lambda _, by=by: self._scroll(by))
        return keys

    def _scroll(self, by: int) -> None:
        self._scrolled = max(0, self._scrolled + by)

    def _leave(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()
