"""`attach` on a terminal: the stream above, below it how the loop stands, and a line to type a message.

Rules: nothing here changes the loop by itself, and leaving never stops it; what is typed is said, or answers the
question that is shown. The terminal is given back as it was, however this ends (a signal, a supervisor that died);
only a KILL of this very process cannot be seen to.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, TextIO, cast

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.vt100 import Vt100_Output

from loopsup import client
from loopsup.cli import follow, render
from loopsup.cli.attach_bar import bar
from loopsup.cli.attach_output import Above
from loopsup.cli.attach_words import Hint, Leave, meaning
from loopsup.cli.common import note
from loopsup.cli.follow import Ending, Seen
from loopsup.cli.screen import Screen
from loopsup.cli.selection import Session, left
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, LoopsupError, SupervisorGoneError

REFRESH_S = 1.0  # the countdown has seconds
PAINT_S = 0.05  # lines are printed together that come within this: an eye sees no difference
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def attach(session: Session) -> int:
    """Until somebody leaves or the session ends; the exit code."""
    view = _View(session)
    try:
        ended = asyncio.run(view.run())
    finally:
        with contextlib.suppress(OSError):  # the terminal is gone
            render.write(view.above.rest(), end="", flush=True)
    if isinstance(ended, Seen):
        return SupervisorGoneError.exit if ended.ending is Ending.LOST else EXIT_DONE
    if isinstance(ended, BaseException):
        raise ended
    note(left(session))
    return EXIT_INTERRUPTED if ended == signal.SIGINT else 128 + ended


class _Watching(Screen):
    """The lines above, and the status for what stands below them."""

    def __init__(self, above: Above) -> None:
        super().__init__(cast("TextIO", above))
        self.latest: Mapping[str, Any] | None = None

    def status(self, status: Mapping[str, Any]) -> None:
        self.latest = status
        super().status(status)


class _View:
    """One terminal. The stream is read by a thread of its own; everything else is the event loop's."""

    def __init__(self, session: Session) -> None:
        self.above = Above(self._heard)
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session = session
        self._screen = _Watching(self.above)
        self._saying = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._input = Buffer(accept_handler=self._accept, history=InMemoryHistory(), multiline=False)
        output = Vt100_Output.from_pty(sys.stdout)
        output.enable_cpr = False  # a terminal that does not say where its cursor is would be waited for
        self._app: Application[Seen | BaseException | int] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            refresh_interval=REFRESH_S,
            min_redraw_interval=PAINT_S,
            erase_when_done=True,
            output=output,
        )

    async def run(self) -> Seen | BaseException | int:
        """How it ended: what was seen last, an error of the stream, or the signal that ended the view."""
        loop = self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave, number)
        threading.Thread(target=self._follow, args=(loop,), daemon=True).start()
        printing = loop.create_task(self._print())
        try:
            return await self._app.run_async(handle_sigint=False)
        except (EOFError, OSError):  # the terminal is gone
            return signal.SIGHUP
        finally:
            self.above.release()
            for task in (printing, *self._tasks):
                task.cancel()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    # ---- the stream -----------------------------------------------------------------------------------

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """In its own thread: show everything until the stream ends."""
        ended: Seen | BaseException
        try:
            ended = follow.watch(self._session, self._screen, until_end=False)
        except Exception as error:  # whatever it was, the terminal is given back before it is told
            ended = error
        with contextlib.suppress(RuntimeError):  # the view has been left meanwhile
            loop.call_soon_threadsafe(self._leave, ended)

    def _heard(self) -> None:
        """Something was written; told from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the view has been left meanwhile
                self._loop.call_soon_threadsafe(self._news.set)

    def _leave(self, ended: Seen | BaseException | int) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=ended)

    async def _print(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if text := self.above.take():
                await run_in_terminal(partial(render.write, text, end="", flush=True))
            self._app.invalidate()
            await asyncio.sleep(PAINT_S)

    # ---- what stands below ------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        tail = Window(
            FormattedTextControl(lambda: self.above.tail),
            wrap_lines=True,  # only where the terminal has become narrower since
            get_line_prefix=lambda _, wrapped: render.INDENT if wrapped else "",
        )
        below = Window(FormattedTextControl(self._bar), style="reverse", wrap_lines=True)
        line = Window(BufferControl(self._input, input_processors=[BeforeInput("> ")]), wrap_lines=True)
        for window in (tail, below, line):
            window.dont_extend_height = Condition(lambda: True)
        rows = HSplit([ConditionalContainer(tail, Condition(lambda: bool(self.above.tail))), below, line])
        return Layout(rows, focused_element=line)

    def _bar(self) -> str:
        return bar(self._screen.latest, render.now_ms(), self._app.output.get_size().columns)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._leave(signal.SIGINT)

        @keys.add("c-d", filter=Condition(lambda: not self._input.text))
        def _(event: KeyPressEvent) -> None:
            self._leave(signal.SIGINT)

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        return keys

    # ---- what is typed ----------------------------------------------------------------------------------

    def _accept(self, buffer: Buffer) -> bool:
        if buffer.text.strip():
            task = asyncio.get_running_loop().create_task(self._send(buffer.text))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return False

    async def _send(self, text: str) -> None:
        """One after the other, in the order they were typed. What comes of it is told in a line."""
        loop = (self._screen.latest or {}).get("loop") or {}
        request = meaning(text, loop.get("question"))
        if isinstance(request, Leave):
            self._leave(signal.SIGINT)
            return
        if isinstance(request, Hint):
            self._tell(request.text)
            return
        async with self._saying:
            try:
                path = self._session.refreshed().socket
                told = (await asyncio.to_thread(client.request, path, request)).message
            except LoopsupError as error:
                told = f"not sent: {error.message}"
        self._tell(render.safe(told))

    def _tell(self, sentence: str) -> None:
        self.above.line(render.sentences(f"loopsup: {sentence}", sys.stdout))
