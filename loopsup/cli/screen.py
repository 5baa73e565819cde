"""Shows a running conversation: streamed text as it comes, everything else line by line.

Rules: the answer that was streamed is not printed a second time when the whole message comes; whatever
interrupts a streamed answer begins on a line of its own; agent text stays indented also while it streams, and on a
terminal in each of its rows (`rows.py`). That a rule stopped an answer stands below what there was of it, though it
is told when it happens. However much is streamed, none of it is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Protocol, TextIO

from loopsup.cli import render
from loopsup.cli.event_words import colour_of
from loopsup.cli.headline import headline, wrapped
from loopsup.cli.rows import Rows
from loopsup.wire import events as ev

ACTIVE = frozenset({"waiting", "queued", "running"})
QUIET = frozenset({"queued", "running"})  # the iteration's own line says it
# What an answer that was stopped still sends before its turn ends.
OF_AN_ANSWER = frozenset(
    {
        ev.MESSAGE_DELTA,
        ev.REASONING_DELTA,
        ev.TOOL_CALL_DELTA,
        ev.ASSISTANT_MESSAGE,
        ev.TOOL_START,
        ev.TOOL_COMPLETE,
        ev.ABORT,
        ev.TTSR_TRIGGERED,
    }
)


class Sink(Protocol):
    """Where a stream goes."""

    def event(self, event: Mapping[str, Any]) -> None: ...

    def status(self, status: Mapping[str, Any]) -> None: ...

    def maximum(self, iterations: int) -> None:
        """The loop's maximum, for the lines of its iterations."""
        ...

    def say(self, text: str) -> None:
        """A sentence of ours."""
        ...

    def finish(self) -> None:
        """Nothing more comes: no half line is left behind."""
        ...


class JsonLines:
    """Events as JSON lines on standard output; sentences on standard error."""

    def __init__(self, stream: TextIO | None = None, errors: TextIO | None = None, *, flush: bool = True) -> None:
        self._flush = flush
        self._out = sys.stdout if stream is None else stream
        self._err = sys.stderr if errors is None else errors

    def event(self, event: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(event, ensure_ascii=True, separators=(",", ":")) + "\n")
        if self._flush:
            self._out.flush()

    def status(self, status: Mapping[str, Any]) -> None:
        """Not an event; the caller has the last one."""

    def maximum(self, iterations: int) -> None:
        """Events carry no more than they are stored with."""

    def say(self, text: str) -> None:
        told = render.sentences(f"loopsup: {render.safe(text)}", self._err)
        render.write(told, stream=self._err, flush=True)

    def finish(self) -> None:
        """Every line is whole already."""


class Screen:
    """Events for people. `flush`: each at once, for somebody who watches."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        width: int | None = None,
        zone: tzinfo | None = None,
        flush: bool = True,
    ) -> None:
        self._flush = flush
        self._out = sys.stdout if stream is None else stream
        self._colour = render.colour_wanted(self._out) if colour is None else colour
        self._width = width
        self._zone = zone
        self._on_terminal = self._out.isatty()
        self._streamed = _Streamed()  # the answer under way
        self._line_open = False
        self._rows = Rows()  # of the answer, on a terminal
        self._max: int | None = None  # known: somebody tells us the status as it changes
        self._told: tuple[object, ...] | None = None
        self._stopped: list[Mapping[str, Any]] = []  # the rules that stopped the answer under way

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == ev.TTSR_TRIGGERED:
            self._stopped.append(event)
            return
        if kind not in OF_AN_ANSWER and kind != ev.TURN_END:
            self._tell_stopped()
        self._show(event)
        if kind == ev.TURN_END:
            self._tell_stopped()

    def _tell_stopped(self) -> None:
        stopped, self._stopped = self._stopped, []
        for event in stopped:
            self._show(event)

    def _show(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if event.get("agentId") is None:
            if kind == ev.MESSAGE_DELTA:
                self._stream(event)
                return
            seen = kind == ev.ASSISTANT_MESSAGE and self._streamed.was((event.get("data") or {}).get("text", ""))
            if kind in (ev.TURN_START, ev.ASSISTANT_MESSAGE):
                self._streamed.clear()
            if seen:
                self._end_line()
                return
        if kind == ev.LOOP_TRANSITION and self._max is not None and (event.get("data") or {}).get("to") in ACTIVE:
            return  # the next wake and the iteration's line say more
        text = render.event_text(event, max_iterations=self._max, width=self._width, zone=self._zone)
        if text is not None:
            self._print(text, colour_of(event))

    def status(self, status: Mapping[str, Any]) -> None:
        """Remembers the maximum; tells the next wake, a pause or an end where they are new."""
        loop = status.get("loop")
        if loop is None:
            return
        self._max = loop["maxIterations"]
        news = (loop["state"], loop.get("pauseReason"), loop.get("nextDueAt"), loop.get("intent"), loop.get("late"))
        if news == self._told:
            return
        self._told = news
        if loop["state"] not in QUIET or loop.get("intent") or loop.get("late"):
            self._tell_stopped()
            colour = "dim" if loop["state"] in ACTIVE else "bold"
            text = render.safe(headline(loop, render.now_ms(), self._zone), multiline=True)
            self._print(wrapped(text, self._columns()), colour)

    def maximum(self, iterations: int) -> None:
        self._max = iterations

    def say(self, text: str) -> None:
        self._print(wrapped(render.safe(text, multiline=True), self._columns()), None)

    def _columns(self) -> int:
        return render.terminal_width() if self._width is None else self._width

    def finish(self) -> None:
        self._tell_stopped()
        self._end_line()

    def _end_line(self) -> None:
        if self._line_open:
            self._line_open = False
            render.write("", stream=self._out, flush=self._flush)
        self._rows.end()

    def _print(self, text: str, colour: str | None) -> None:
        self._end_line()
        if self._on_terminal:
            text = "\n".join(map(self._in_rows, render.encodable(text, self._out).split("\n")))
        render.write(render.paint(text, colour, self._colour), stream=self._out, flush=self._flush)

    def _in_rows(self, line: str) -> str:
        """A line of ours is broken already; one of the agent's is it here."""
        if not line.startswith(render.INDENT):
            return line
        return Rows().add(line.removeprefix(render.INDENT), self._row_columns())

    def _row_columns(self) -> int:
        """What the terminal really has, also where that is less than we like."""
        return self._width or render.real_width() or render.terminal_width()

    def _stream(self, event: Mapping[str, Any]) -> None:
        raw = str((event.get("data") or {}).get("text", ""))
        text = render.safe(raw, multiline=True)
        if not self._streamed.begun:
            text = text.lstrip("\n")
        self._streamed.add(raw)
        if self._on_terminal:
            shown = self._rows.add(render.encodable(text, self._out), self._row_columns())
            self._line_open = self._line_open or self._rows.open  # first: Ctrl-C may come while we write
            self._out.write(shown)
            self._line_open = self._rows.open
        else:
            self._lines(text)
        self._out.flush()

    def _lines(self, text: str) -> None:
        """Each as long as it is. The indentation is written with the first character, not with the newline before."""
        for number, part in enumerate(text.split("\n")):
            if number > 0:
                render.write("", stream=self._out)
                self._line_open = False
            if part:
                before = "" if self._line_open else render.INDENT
                self._line_open = True  # first: Ctrl-C may come while we write
                render.write(before + part, end="", stream=self._out)


class _Streamed:
    """Knows an answer again by a digest of it.

    Of its characters, white space aside: an adapter may join the parts of an answer with newlines.
    """

    def __init__(self) -> None:
        self._digest: Any = None

    @property
    def begun(self) -> bool:
        return self._digest is not None

    def add(self, text: str) -> None:
        if self._digest is None:
            import hashlib

            self._digest = hashlib.blake2b()
        self._digest.update("".join(text.split()).encode("utf-8", "surrogatepass"))

    def was(self, whole: object) -> bool:
        """All of it has been streamed, and nothing else."""
        other = _Streamed()
        other.add(str(whole))
        return self.begun and self._digest.digest() == other._digest.digest()

    def clear(self) -> None:
        self._digest = None
