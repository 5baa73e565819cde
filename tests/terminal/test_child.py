"""A program on a pseudo-terminal: drained, resized, ended with all it started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from loopsup.process import Ladder
from loopsup.shell.leftover import alive
from loopsup.terminal.child import Size, TerminalChild

pytestmark = pytest.mark.slow
LADDER = Ladder(ask_s=0.3, term_s=0.3, kill_s=60.0)


def drive(code: str, scenario: Callable[[TerminalChild, bytearray], Awaitable[None]]) -> bytearray:
    seen = bytearray()

    async def run() -> None:
        argv = [sys.executable, "-I", "-S", "-c", code]
        child = await TerminalChild.spawn(
            argv, cwd=Path("/"), env=dict(os.environ), size=Size(7, 33), on_output=seen.extend, ladder=LADDER
        )
        try:
            await asyncio.wait_for(scenario(child, seen), 100)
        finally:
            await child.close()

    asyncio.run(run())
    return seen


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_it_has_a_controlling_terminal_of_its_own_and_learns_of_its_size() -> None:
    code = (
        "import os, signal, time\n"
        "again = lambda *_: os.write(1, f'{os.get_terminal_size()}\\n'.encode())\n"  # print may not interrupt itself
        "signal.signal(signal.SIGWINCH, again)\n"
        "own = (os.ttyname(0) == os.ttyname(1), os.getsid(0) == os.getpid(), open('/dev/tty').isatty())\n"
        "print(*own, flush=True)\n"
        "again()\n"
        "while True: time.sleep(0.05)\n"  # a signal that comes right before pause(2) would be seen after it, so never
    )

    async def scenario(child: TerminalChild, seen: bytearray) -> None:
        await until(lambda: b"columns=33, lines=7" in seen)
        assert b"True True True" in seen
        child.resize(Size(9, 50))
        await until(lambda: b"columns=50, lines=9" in seen)

    drive(code, scenario)


def test_its_output_is_drained_and_its_last_words_are_heard() -> None:
    code = "import sys\nfor n in range(20000): print('x' * 60)\nprint('last words')\nsys.exit(3)"

    async def scenario(child: TerminalChild, seen: bytearray) -> None:
        assert await child.wait() == "exit status 3"
        assert seen.rstrip().endswith(b"last words")
        assert seen.count(b"\n") == 20001
        assert child.write(b"x") is False

    drive(code, scenario)


def test_what_it_does_not_read_yet_is_queued(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import tty, os, time\ntty.setraw(0)\nprint('ready', flush=True)\nn = 0\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "while n < 300000: n += len(os.read(0, 4096))\n"
        "print('got', n, flush=True)\ntime.sleep(60)"
    )

    async def scenario(child: TerminalChild, seen: bytearray) -> None:
        await until(lambda: b"ready" in seen)
        assert child.write(b"x" * 300_000)
        assert not await child.written(0.05)
        go.touch()
        assert await child.written(60)
        await until(lambda: b"got 300000" in seen)

    drive(code, scenario)


def test_a_grandchild_that_ignores_everything_and_holds_the_terminal_does_not_survive() -> None:
    deaf = (
        "import signal, time\nfor n in (1, 15): signal.signal(n, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(300)"
    )
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', '-c', {deaf!r}], start_new_session=True)\ntime.sleep(300)"
    )
    family: list[psutil.Process] = []

    async def scenario(child: TerminalChild, seen: bytearray) -> None:
        await until(lambda: b"deaf" in seen)
        family.extend([psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)])
        assert len(family) == 2

    drive(code, scenario)
    assert not any(map(alive, family))
