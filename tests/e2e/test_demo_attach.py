"""`attach` on a terminal: take part, leave, lose the line; the terminal is given back, the loop never notices."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from typing import Any

import pexpect
import psutil
import pytest

from loopsup.shell.bus import FOLLOWER_QUEUE
from tests.support.demo_words import DONE, ON, decide
from tests.support.terminals import hang_up
from tests.support.world import LOOPSUP, QUICK, World, words

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # each wait has its own bound; there are several

BAR = "Enter sends a message"
PASTE_OFF = "\x1b[?2004l"


class Terminal:
    """A shell on a terminal of its own, and what `attach` does in it."""

    def __init__(self, world: World) -> None:
        env = {**world.env, "PS1": "ready> ", "TERM": "xterm"}
        self.world = world
        self.child = pexpect.spawn(
            "/bin/sh", ["-i"], cwd=str(world.project), env=env, encoding="utf-8", timeout=60, dimensions=(30, 100)
        )
        self.child.expect("ready> ")
        self.before = self.modes()

    def modes(self) -> Any:
        return termios.tcgetattr(self.child.child_fd)

    def attach(self, bar: str = BAR) -> None:
        self.child.sendline(" ".join([*LOOPSUP, "attach"]))
        self.child.expect("watching session 'project'")
        self.child.expect(bar)

    def process(self) -> psutil.Process:
        (found,) = [each for each in self.world.processes() if words(each)[-1:] == ["attach"]]
        return found

    def over(self, code: int) -> None:
        """`attach` has ended with this code, and the terminal is as it was."""
        self.child.expect("ready> ")
        self.child.sendline("echo code=$?")
        self.child.expect(f"code={code}\\b")
        self.child.expect("ready> ")
        assert self.modes() == self.before


@pytest.fixture
def terminal(world: World) -> Iterator[Terminal]:
    made = Terminal(world)
    yield made
    hang_up(made.child)


def test_a_message_the_countdown_a_resize_and_leaving(world: World, terminal: Terminal) -> None:
    world.start([decide(ON)], "--every", "10m")
    world.until(state="waiting")
    terminal.attach("waiting: the next wake is at")
    terminal.child.expect(BAR)
    terminal.child.expect(r"\x1b\[0;7m\d")  # one digit of the time that is left
    terminal.child.send("are the tests green?\r")
    world.until_event("user.message", 1, origin="user", text="are the tests green?")
    terminal.child.expect("are the tests green\\?")
    terminal.child.setwinsize(24, 70)
    terminal.child.expect(BAR)
    terminal.child.send("and now?\r")
    world.until_event("user.message", 1, origin="user", text="and now?")
    terminal.child.send("/stop\r")
    terminal.child.expect("/stop is unknown here and was not sent")
    terminal.child.send("//etc\r")
    world.until_event("user.message", 1, origin="user", text="/etc")
    terminal.child.send("/quit\r")
    terminal.child.expect("left; the loop goes on")
    terminal.over(130)
    assert world.peek()["loop"]["state"] == "waiting"
    assert world.said("user") == ["are the tests green?", "and now?", "/etc"]


def test_a_question_is_answered_from_two_terminals(world: World, terminal: Terminal) -> None:
    world.start([{"do": "ask", "kind": "permission", "args": DONE}])
    world.until_event("permission.requested")
    other = Terminal(world)
    try:
        for each in (terminal, other):
            each.attach("QUESTION")
        world.wait_for(lambda: world.peek()["session"]["clients"] == 2, "both")
        other.child.send("/allow\r")
        world.until_event("permission.completed", 1, outcome="allowed", by="user")
        world.until(state="completed")
        terminal.child.expect("COMPLETED")
        terminal.child.send("/deny\r")
        terminal.child.expect("no question is pending")
        terminal.child.sendintr()
        terminal.over(130)
    finally:
        hang_up(other.child)


def test_the_supervisor_is_killed_while_somebody_types(world: World, terminal: Terminal) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    terminal.attach()
    terminal.child.send("half a mess")
    terminal.child.expect("half a mess")
    world.kill(world.supervisor())
    terminal.child.expect_exact(PASTE_OFF)
    terminal.child.expect("is gone without closing it")
    terminal.over(5)


def test_the_session_is_closed_while_somebody_watches(world: World, terminal: Terminal) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    terminal.attach()
    world.ok("close")
    terminal.child.expect("was closed \\(command\\)")
    terminal.over(0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_attach_is_ended_by_a_signal(world: World, terminal: Terminal, number: signal.Signals, code: int) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    terminal.attach()
    terminal.process().send_signal(number)
    terminal.child.expect_exact(PASTE_OFF)
    terminal.over(code)
    assert world.peek()["loop"]["state"] == "waiting"


def test_t1_ticks_go_on_whoever_leaves_and_however(world: World, terminal: Terminal) -> None:
    """Recipe T1: a terminal that is closed, one in mid-turn, a cut socket; then somebody attaches again."""
    world.env["LOOPSUP_ORPHAN_REAP_GRACE_S"] = "1"
    world.start([decide(ON), decide(ON, wait_for=world.gate("turn")), decide(ON)], *QUICK)
    pid = world.supervisor()
    world.wait_for(lambda: len(world.said("loop")) == 2, "the turn")
    terminal.attach("running: iteration 2 of 50")
    hang_up(terminal.child)  # in the middle of a turn: the line hangs up
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "it to be gone")
    world.open("turn")
    world.wait_for(lambda: len(world.said("loop")) >= 6, "four further ticks", 60)
    again = Terminal(world)
    try:
        again.attach()
        assert world.supervisor() == pid
        again.process().send_signal(signal.SIGKILL)  # its socket is cut
        before = len(world.said("loop"))
        world.wait_for(lambda: len(world.said("loop")) >= before + 4, "four more", 60)
    finally:
        hang_up(again.child)
    assert world.events("abort") == []
    world.ok("pause")  # and now nothing holds it
    world.until_over(pid)
    assert world.loop()["pauseReason"] == "user"


def test_a_terminal_that_takes_nothing_is_dropped_and_nobody_waits_for_it(world: World, terminal: Terminal) -> None:
    world.start([decide(ON), {"do": "flood", "count": 8 * FOLLOWER_QUEUE}, decide(DONE)])
    world.until(state="waiting")
    terminal.attach()
    process = terminal.process()
    os.kill(process.pid, signal.SIGSTOP)  # as a terminal stopped by Ctrl-S, or a laptop that went away
    world.ask("say", text="talk without end", wait=True)
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "it to be dropped", 60)
    assert world.json("status")["loop"]["state"] == "waiting"
    process.kill()
