"""`loopsup attach` where the agent has a screen of its own: that screen, on the person's terminal, and the keyboard.

Rules. Leaving (Ctrl-]) changes nothing. The person's terminal is given back as it was on every way out: the
program's modes are switched off, the alternate screen is left, line discipline is restored, also when the supervisor
dies or a signal ends this process.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loopsup.cli import render
from loopsup.cli.common import note
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, LoopsupError, SupervisorGoneError
from loopsup.wire import terminal
from loopsup.wire.control import BUSY_TIMEOUT_S, Request

if TYPE_CHECKING:
    from loopsup.cli.selection import Session
    from loopsup.client import Connection

LEAVE_KEY = "Ctrl-]"
# The key itself, and as terminals send it once a program has switched their keyboard protocol on.
_LEAVE = re.compile(rb"\x1d|\x1b\[93;5(?::[12])?u|\x1b\[27;5;93~")
ENTER = b"\x1b[?1049h\x1b[2J\x1b[H"
RESET = (
    b"\x1b[?2026l\x1b[?5l"  # a drawing cut half-way is shown, and nothing reversed
    b"\x1b[?9l\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # the mouse
    b"\x1b[?1004l\x1b[?2004l\x1b[?2031l\x1b[?1007l"  # focus, paste, colour reports, wheel
    b"\x1b[<16u\x1b[=0u\x1b[>4;0m\x1b>\x1b[?1l"  # the keyboard
    b"\x1b[0m\x1b[r\x1b[?7h\x1b[?25h\x1b]112\x07\x1b[0 q"  # colours, scrolling, wrapping, the cursor
)
LEAVE = RESET + b"\x1b[?1049l\x1b[?25h"
READ_CHUNK = 64 * 1024
GREETING_S = 1.5  # one line is read in it, and nobody is kept waiting
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class _SignalledError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def wanted(session: Session) -> bool:
    """The agent has a screen."""
    from loopsup import registry

    try:
        return bool(registry.load(session.identity.agent).capabilities.terminal)
    except LoopsupError:
        return False


def attach(session: Session) -> int:
    """Show the screen until the person leaves or the session ends; the exit code. UnreachableError."""
    from loopsup import client

    path = session.refreshed().socket
    client.ping(path)
    with client.Connection(path) as connection:
        connection.send(Request("terminal", dict(zip(("rows", "cols"), _size(), strict=True))))
        connection.response(BUSY_TIMEOUT_S)
        try:
            with _raw():
                _greet(f"this is the screen of session '{session.name}' ({session.identity.agent})")
                reason = _Attached(connection).run()
        except _SignalledError as ended:
            if ended.number == signal.SIGINT:
                return EXIT_INTERRUPTED
            signal.signal(ended.number, signal.SIG_DFL)
            os.kill(os.getpid(), ended.number)
            raise
        except SupervisorGoneError:
            reason = None
    if reason is None:
        note(
            f"the supervisor of session '{session.name}' is gone without closing it; "
            f"`loopsup resume --session {session.name}` goes on"
        )
        return SupervisorGoneError.exit
    note(reason or _left(session))
    return EXIT_DONE


def _greet(words: str) -> None:
    """How to leave, on the screen that is about to be the program's; the first key ends it, and is not lost."""
    _write(f"{render.safe(words)}; {LEAVE_KEY} leaves it\r\n".encode())
    select.select([sys.stdin.fileno()], [], [], GREETING_S)


def _left(session: Session) -> str:
    return f"left; session '{session.name}' goes on (`loopsup attach --session {session.name}` shows it again)"


class _Attached:
    """Terminal and stream joined."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self) -> str | None:
        """'' where the person left, None where the supervisor died, else what became of the session."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        try:
            return self._loop(wake_read)
        finally:
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            signal.set_wakeup_fd(before)
            os.close(wake_read)
            os.close(wake_write)

    def _loop(self, wake: int) -> str | None:
        stdin = sys.stdin.fileno()
        while True:
            ready: list[Any] = [self._connection]
            if not self._connection.buffered:
                ready, _, _ = select.select([stdin, self._connection, wake], [], [])
            if wake in ready:
                os.read(wake, READ_CHUNK)
                self._connection.send_line(terminal.encode(terminal.Resized(*_size())))
            if stdin in ready and not self._typed(os.read(stdin, READ_CHUNK)):
                return ""
            if self._connection in ready:
                line = self._connection.read_line(None)
                if line is None:
                    return None
                match terminal.from_supervisor(line):
                    case terminal.Output(data):
                        _write(data)
                    case terminal.Absent(why):
                        _write(RESET + b"\x1b[2J\x1b[H" + f"{render.safe(why)}; {LEAVE_KEY} leaves\r\n".encode())
                    case terminal.Closed(reason):
                        return f"the session was closed ({render.safe(reason)})"

    def _typed(self, data: bytes) -> bool:
        """False: the person leaves."""
        if not data:
            return False
        leave = _LEAVE.search(data)
        data = data if leave is None else data[: leave.start()]
        if data:
            self._connection.send_line(terminal.encode(terminal.Input(data)))
        return leave is None


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Keys as they come, an empty alternate screen; everything as before on the way out."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    handlers = {number: signal.signal(number, _signalled) for number in SIGNALS}
    try:
        tty.setraw(stdin, termios.TCSANOW)
        _write(ENTER)
        yield
    finally:
        for number in SIGNALS:  # a second signal must not cut this short
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            _write(LEAVE)
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(stdin, termios.TCSAFLUSH, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _signalled(number: int, frame: object) -> None:
    raise _SignalledError(number)


def _size() -> tuple[int, int]:
    found = os.get_terminal_size(sys.stdout.fileno())
    return max(1, found.lines), max(1, found.columns)


def _write(data: bytes) -> None:
    fd = sys.stdout.fileno()
    while data:
        data = data[os.write(fd, data) :]
