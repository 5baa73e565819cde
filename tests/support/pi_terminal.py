"""The real Pi in its TUI, started by hand with loopsup's extension, and the person in front of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pexpect
import pyte

from loopsup_pi.extension import SOURCE
from tests.support.pi_product import PiProduct

PATIENCE_S = 60.0
POLL_S = 0.05
READ_CHUNK = 64 * 1024
COLUMNS, LINES = 200, 50  # wide: no line of ours is folded
READY = b"\x1b]7501;state=idle"  # what Pi writes with PI_PROGRAM_STATUS=1 when it takes input
_CONTROL = re.compile(rb"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_].*?\x1b\\|[@-Z\\-_])")


class PiTerminal:
    """A terminal that is always read. `mark` is where the look for new text begins.

    Pi draws a row only when it differs from what stands there, and what changes twice between two frames is drawn
    once. So `see` takes what stands on the screen as well: a text that stood there before is seen at once, and a test
    that means a new one waits first for what removes the old.
    """

    def __init__(self, pi: PiProduct, *args: str) -> None:
        argv = ["-e", str(SOURCE), *args]
        env = {**pi.env, "PI_PROGRAM_STATUS": "1", "TERM": "xterm-256color"}
        self.child = pexpect.spawn("pi", argv, cwd=str(pi.project), env=env, dimensions=(LINES, COLUMNS))
        self._pi = pi
        self._raw = bytearray()
        self._mark = 0
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._drawing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Not by pexpect, which looks at each reading whether the child lives: only one thread may ask that."""
        stream = pyte.ByteStream(self._screen)
        with contextlib.suppress(OSError):  # so a terminal ends whose last program has gone
            while data := os.read(self.child.child_fd, READ_CHUNK):
                with self._drawing:
                    self._raw += data
                    stream.feed(data)

    def ready(self) -> PiTerminal:
        self._wait(lambda: READY in self._raw, "Pi to take input")
        return self

    def type(self, line: str) -> None:
        """A line, pasted and submitted."""
        self._mark = len(self._raw)
        self.child.send(f"\x1b[200~{line}\x1b[201~")
        self.see(line)
        self._mark = len(self._raw)
        self.child.send("\r")

    def press(self, keys: str) -> None:
        self._mark = len(self._raw)
        self.child.send(keys)

    def see(self, text: str) -> None:
        """Wait until this was drawn since the last thing typed, or stands on the screen."""
        self._wait(lambda: text in self.text(self._mark) or self.shows(text), repr(text))

    def until_gone(self, text: str) -> None:
        """Wait until this does not stand on the screen any more."""
        self._wait(lambda: not self.shows(text), f"the end of {text!r}")

    def shows(self, text: str) -> bool:
        """It stands on the screen, in one row."""
        with self._drawing:
            return any(text in row for row in self._screen.display)

    def text(self, since: int = 0) -> str:
        return _CONTROL.sub(b"", bytes(self._raw[since:])).decode("utf-8", "replace")

    def until_over(self) -> None:
        self._wait(lambda: not self.child.isalive(), "Pi to end")
        self._reader.join(PATIENCE_S)

    def quit(self) -> None:
        self.type("/quit")
        self.until_over()

    def end(self) -> None:
        """Whatever Pi is doing. pexpect's own way gives a busy machine a tenth of a second to show its death."""
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
            self.child.wait()
        self._reader.join(PATIENCE_S)
        self.child.close()

    def _wait(self, what: Callable[[], object], name: str) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < give_up, f"waited for {name}\n{self.text()[-4000:]}\n{self._pi.log()}"
            time.sleep(POLL_S)


@contextlib.contextmanager
def person(pi: PiProduct, *args: str) -> Iterator[PiTerminal]:
    """In front of a Pi of their own; the terminal is closed at the end."""
    terminal = PiTerminal(pi, *args)
    try:
        yield terminal
    finally:
        terminal.end()
