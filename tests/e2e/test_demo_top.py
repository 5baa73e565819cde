"""`loopsup top` on a real terminal: it follows what happens, and gives the terminal back."""

from __future__ import annotations

import contextlib
import signal
import termios
from collections.abc import Callable, Iterator

import pexpect
import pyte
import pytest

from tests.support.demo_words import ON, decide
from tests.support.terminals import fresh_modes, hang_up
from tests.support.world import LOOPSUP, World

pytestmark = pytest.mark.slow

LEFT = "\x1b[?1049l"  # the screen that was there before is back


class Top:
    """`top` on a terminal of its own, and what stands on its screen."""

    def __init__(self, world: World) -> None:
        env = {**world.env, "TERM": "xterm"}
        self.before = fresh_modes()  # not read from its own: by then it may have changed them
        command, *args = [*LOOPSUP, "top"]
        self.child = pexpect.spawn(command, args, cwd=str(world.project), env=env, timeout=60, dimensions=(24, 100))
        self.written = b""
        self._world = world
        self._screen = pyte.Screen(100, 24)
        self._stream = pyte.ByteStream(self._screen)

    def sees(self, what: Callable[[list[str]], bool]) -> None:
        """Wait until the screen is so."""

        def look() -> bool:
            with contextlib.suppress(pexpect.TIMEOUT):
                self._read(self.child.read_nonblocking(65536, timeout=0))
            return what([line.rstrip() for line in self._screen.display])

        self._world.wait_for(look, "the screen")

    def resized(self, rows: int, columns: int) -> None:
        self._screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def over(self) -> None:
        """It has ended well, and the terminal is as it was."""
        with contextlib.suppress(pexpect.EOF):
            while True:
                self._read(self.child.read_nonblocking(65536, timeout=60))
        assert termios.tcgetattr(self.child.child_fd) == self.before
        assert self.child.wait() == 0
        assert LEFT.encode() in self.written

    def _read(self, data: bytes) -> None:
        self.written += data
        self._stream.feed(data)


@pytest.fixture
def screen(world: World) -> Iterator[Top]:
    made = Top(world)
    yield made
    hang_up(made.child)


def test_it_shows_what_happens_and_q_leaves(world: World, screen: Top) -> None:
    screen.sees(lambda lines: "no session" in lines[0])
    world.start([decide(ON)], "--session", "night")
    world.until(session="night", state="waiting")
    screen.sees(lambda lines: "1 session: 1 waiting" in lines[0] and lines[2].startswith("night"))
    world.ok("pause", "--session", "night")
    screen.sees(lambda lines: "1 paused" in lines[0])
    screen.resized(10, 40)
    screen.sees(lambda lines: lines[0].startswith("loopsup: 1 session: 1 paused") and "leaves" not in lines[0])
    screen.child.send("\x1b[B")
    screen.sees(lambda lines: lines[1].startswith("night"))  # scrolled by one
    screen.child.send("q")
    screen.over()
    assert world.peek("night")["loop"]["state"] == "paused"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_terminal_back(screen: Top, number: signal.Signals) -> None:
    screen.sees(lambda lines: "no session" in lines[0])
    screen.child.kill(number)
    screen.over()
