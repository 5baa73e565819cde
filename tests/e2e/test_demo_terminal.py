"""Terminals and clients come and go; the loop does not notice."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator

import pexpect
import pytest

from loopsup.shell.bus import FOLLOWER_QUEUE
from loopsup.wire.control import Request, encode_request
from tests.support.demo_words import DONE, ON, decide
from tests.support.terminals import hang_up
from tests.support.world import LOOPSUP, QUICK, World

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(world: World) -> Iterator[pexpect.spawn]:
    """An interactive shell on a terminal of its own."""
    env = {**world.env, "PS1": "ready> ", "TERM": "xterm"}
    child = pexpect.spawn("/bin/sh", ["-i"], cwd=str(world.project), env=env, encoding="utf-8", timeout=60)
    child.expect("ready> ")
    yield child
    hang_up(child)


def begin(world: World, shell: pexpect.spawn, *options: str) -> int:
    """A following start, typed into the shell; the supervisor once the first turn has begun."""
    script = world.script([decide(ON, wait_for=world.gate("go")), decide(DONE)])
    words = [*LOOPSUP, "start", *QUICK, *options, "--agent", "demo", "watch", "--", "--script", str(script)]
    shell.sendline(" ".join(words))
    world.until_event("assistant.turn_start")
    return world.supervisor()


def test_the_terminal_is_closed_in_mid_turn(world: World, shell: pexpect.spawn) -> None:
    pid = begin(world, shell)
    [agent] = world.agents(pid)
    hang_up(shell)  # the kernel hangs the line up: HUP to everybody on it
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "the follower to be gone")
    assert world.supervisor() == pid
    assert world.agents(pid) == [agent]
    world.open("go")
    assert world.run("wait").code == 0
    assert world.loop()["iterationCount"] == 2
    assert world.events("abort") == []


def test_ctrl_c_of_the_follower_leaves_and_the_loop_goes_on(world: World, shell: pexpect.spawn) -> None:
    begin(world, shell)
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the follower")
    shell.sendintr()
    shell.expect("the loop goes on")
    shell.expect("loopsup stop")
    shell.expect("ready> ")
    shell.sendline("echo code=$?")
    shell.expect("code=130")
    assert world.peek()["loop"]["state"] == "running"
    shell.sendline(" ".join([*LOOPSUP, "attach"]))
    shell.expect("watching session 'project'")
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the follower")
    shell.sendintr()
    shell.expect("ready> ")
    shell.sendline("echo code=$?")
    shell.expect("code=130")
    world.open("go")
    assert world.run("wait").code == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL], ids=lambda number: number.name)
def test_the_follower_is_ended_by_a_signal(world: World, number: signal.Signals) -> None:
    script = world.script([decide(ON, wait_for=world.gate("go")), decide(DONE)])
    follower = world.spawn("start", *QUICK, "--agent", "demo", "watch", "--", "--script", str(script))
    world.until_event("assistant.turn_start")
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the follower")
    follower.send_signal(number)
    world.finish(follower)
    world.open("go")
    assert world.run("wait").code == 0
    assert world.events("abort") == []


def test_a_hang_up_of_the_supervisor_itself_means_nothing(world: World) -> None:
    world.start([decide(ON, wait_for=world.gate("go")), decide(DONE)], *QUICK)
    world.until_event("assistant.turn_start")
    world.kill(world.supervisor(), signal.SIGHUP)
    world.open("go")
    assert world.run("wait").code == 0


def test_term_closes_a_detached_session_in_good_order(world: World) -> None:
    world.start(["hang"])
    world.until_event("assistant.turn_start")
    pid = world.supervisor()
    [agent] = world.agents(pid)
    world.kill(pid, signal.SIGTERM)
    world.until_over(pid)
    world.until_over(agent)
    assert world.loop()["pauseReason"] == "session_closed"
    assert world.pairs() == (1, 1)


def test_clients_that_are_cut_off_or_talk_nonsense(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    path = str(world.socket())
    for sent in (b"", b"\n", b"nonsense\n", b'{"v":1,"verb":"follow"}\n', b'{"v":1,"verb":"wait","args":{}}\n', b"{"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(sent)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b'{"v":1,"verb":"explode","args":{}}\n')
        assert json.loads(client.makefile().readline())["error"]["kind"] == "usage"
    world.wait_for(lambda: world.peek()["session"]["clients"] == 0, "all of them to be gone")
    assert world.json("status")["loop"]["state"] == "waiting"


def test_a_follower_that_does_not_read_is_dropped_and_nobody_waits_for_it(world: World) -> None:
    script = [decide(ON), {"do": "flood", "count": 4 * FOLLOWER_QUEUE}, decide(DONE)]
    world.start(script)
    world.until(state="waiting")
    with socket.socket(socket.AF_UNIX) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(str(world.socket()))
        client.sendall(encode_request(Request("follow")))
        world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the slow follower")
        world.ask("say", text="talk without end", wait=True)
        assert world.pairs() == (2, 2)
        world.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
        assert world.run("wait").code == 0
        client.settimeout(60)
        seen = b"".join(iter(lambda: client.recv(1 << 20), b""))  # what was queued, then the end of the stream
    assert seen.count(b"message_delta") < 4 * FOLLOWER_QUEUE
    assert b'"closed"' not in seen  # dropped, not dismissed


def test_a_follower_whose_output_is_closed_ends_quietly(world: World) -> None:
    world.start([decide(ON, wait_for=world.gate("go")), decide(DONE)], *QUICK)
    world.until_event("assistant.turn_start")
    reading, writing = os.pipe()
    follower = world.spawn("attach", stdout=writing)
    os.close(writing)
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the follower")
    os.close(reading)
    world.open("go")
    ended = world.finish(follower)
    assert "Traceback" not in ended.err
    assert world.run("wait").code == 0
