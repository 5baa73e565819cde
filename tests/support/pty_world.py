"""Loops of the scripted terminal program in a world of real processes, and a person's terminal before it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pyte

from tests.support.pty_harness import OPTIONS, TUI
from tests.support.terminals import fresh_modes, hang_up
from tests.support.world import LOOPSUP, SLOW, World

Steps = list[dict[str, Any]]
CONTROL = [sys.executable, "-P", "-m", "loopsup", "control"]
LEAVE = "\x1d"
# What must be switched off again at a terminal that was lent to a program.
OFF = (b"\x1b[?1000l", b"\x1b[?1002l", b"\x1b[?1003l", b"\x1b[?1004l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?1049l")


def decide(verb: str, summary: str = "looked", evidence: str = "ran make test", *more: str) -> dict[str, Any]:
    """A step: this decision, from the program's shell."""
    return {"run": [*CONTROL, verb, "--summary", summary, "--evidence", evidence, *more]}


def program(world: World, prompts: list[Steps], **start: Any) -> tuple[str, ...]:
    """Its command line; the script may be written anew at any time."""
    path = world.script({"start": start, "prompts": prompts})
    state = world.root / "tui"
    state.mkdir(exist_ok=True)
    return (*TUI, str(path), str(state))


def begin(world: World, prompts: list[Steps], *options: str, start: dict[str, Any] | None = None) -> Any:
    """A detached loop, hourly unless the options say otherwise; its status."""
    rhythm = () if "--every" in options else SLOW
    words = (
        "--agent",
        "pty",
        "--detach",
        *rhythm,
        *options,
        "obj",
        "--",
        *OPTIONS,
        *program(world, prompts, **(start or {})),
    )
    return world.json("start", *words)


def kept(world: World, kind: str) -> list[str]:
    """What the program wrote down, oldest conversation first."""
    files = sorted((world.root / "tui").glob("*.jsonl"), key=lambda path: path.stat().st_ctime_ns)
    lines = [json.loads(line) for path in files for line in Path(path).read_text().splitlines()]
    return [item["text"] for item in lines if item["kind"] == kind]


def told_of_a_draft(world: World) -> bool:
    """It was said that a message waits for somebody's own text."""
    notices = [event["data"]["message"] for event in world.events("loop.notice")]
    return any("an unsent text stands on the input line" in notice for notice in notices)


class Person:
    """Somebody at a terminal of their own who attaches. What they see is what stands on it, or has come since they
    last looked: a program that draws only what has changed writes few words as a whole."""

    def __init__(self, world: World, rows: int = 30, cols: int = 100) -> None:
        env = {**world.env, "TERM": "xterm-256color"}
        self.before = fresh_modes()  # the child may have changed its own before we get to look at them
        command, *args = [*LOOPSUP, "attach"]
        self.all = b""
        self._world, self._seen = world, 0
        self._screen = pyte.Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.child = pexpect.spawn(
            command, args, cwd=str(world.project), env=env, dimensions=(rows, cols), timeout=60, maxread=65536
        )
        self.child.logfile_read = self

    def write(self, data: bytes) -> None:
        self.all += data
        try:
            self._stream.feed(data)
        except Exception:  # a sequence that pyte cannot deal with: `all` has the words
            self._stream = pyte.ByteStream(self._screen)

    def flush(self) -> None:
        pass

    def modes(self) -> Any:
        return termios.tcgetattr(self.child.child_fd)

    def sees(self, text: str) -> None:
        self._world.wait_for(lambda: self._looks_for(text), f"{text!r} on the terminal")

    def _looks_for(self, text: str) -> bool:
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            self.child.read_nonblocking(65536, timeout=0)
        at = self.all.find(text.encode(), self._seen)
        if at >= 0:
            self._seen = at + len(text.encode())
        return at >= 0 or any(text in row for row in self._screen.display)

    def types(self, text: str) -> None:
        self.child.send(text)

    def leaves(self) -> int:
        self.types(LEAVE)
        return self.ended()

    def ended(self) -> int:
        """Its exit code; the terminal must be as it was."""
        self.child.expect(pexpect.EOF)
        self.child.wait()
        tail = self.all[self.all.rindex(b"\x1b[?2026l") :]
        assert [mode for mode in OFF if mode not in tail] == []
        assert self.modes() == self.before
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)


@contextlib.contextmanager
def person(world: World, **how: Any) -> Iterator[Person]:
    found = Person(world, **how)
    try:
        yield found
    finally:
        hang_up(found.child)


def lines_of(descriptor: int) -> tuple[int, int]:
    """Rows and columns of a terminal."""
    size = os.get_terminal_size(descriptor)
    return size.lines, size.columns
