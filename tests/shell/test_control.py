"""The control socket, real, with a scripted agent behind it: verbs, garbage, clients that go, clients that hang."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from loopsup.clock import SystemClock
from loopsup.shell.bus import FOLLOWER_QUEUE
from loopsup.shell.control import ControlServer
from loopsup.shell.handlers import Handlers
from loopsup.shell.mending import Mender
from loopsup.wire.control import CLOSING, MAX_LINE, MAX_OBJECTIVE, Request
from tests.shell.world import World
from tests.support.fake_agent import FakeAdapter, hangs, says, talks

DEADLINE_S = 60.0
FIXED = {"rhythm": 600_000}


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, path: Path) -> Client:
        return cls(*await asyncio.open_unix_connection(str(path), limit=2 * MAX_LINE))

    async def send(self, data: bytes | dict[str, Any]) -> None:
        self.writer.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        await self.writer.drain()

    async def line(self) -> Any:
        """The next line; None at the end."""
        line = await self.reader.readline()
        return json.loads(line) if line else None

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Served:
    """A session with its socket."""

    def __init__(self, world: World, server: ControlServer, path: Path) -> None:
        self.world = world
        self.server = server
        self.path = path

    async def client(self, verb: str, **args: Any) -> Client:
        client = await Client.to(self.path)
        await client.send({"v": 1, "verb": verb, "args": args})
        return client

    async def ask(self, verb: str, **args: Any) -> Any:
        client = await self.client(verb, **args)
        answer = await client.line()
        await client.leave()
        return answer

    async def raw(self, data: bytes) -> Any:
        client = await Client.to(self.path)
        with contextlib.suppress(ConnectionError):
            await client.send(data)
        answer = await client.line()
        await client.leave()
        return answer


@contextlib.asynccontextmanager
async def _served(folder: Path, adapter: FakeAdapter) -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="ls") as short:
        path = Path(short) / "s.sock"
        async with World(SystemClock(), folder / "session", adapter, recheck_s=0.05) as world:
            server = ControlServer(path, world.handlers, lambda: None)
            await server.start()
            world.supervisor.maintain = Mender(server, world.supervisor)
            try:
                yield Served(world, server, path)
            finally:
                world.supervisor.ask_to_close("test")
                await world.over()
                await server.stop()


def live(folder: Path, story: Callable[[Served], Coroutine[Any, Any, None]], adapter: FakeAdapter) -> None:
    """In real time. Fails on an exception nobody took and on tasks left behind."""
    problems: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context)))
        async with asyncio.timeout(DEADLINE_S), _served(folder, adapter) as served:
            await story(served)
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left

    asyncio.run(main())
    assert not problems, problems


def _agent(**named: Any) -> FakeAdapter:
    return FakeAdapter(default=says("continue"), **named)


async def _until(served: Served, condition: Callable[[], bool]) -> None:
    await served.world.until(condition)


def test_every_verb(tmp_path: Path) -> None:
    agent = _agent()

    async def story(served: Served) -> None:
        world = served.world
        assert (await served.ask("ping"))["ok"] is True
        assert (await served.ask("status"))["status"]["loop"] is None
        for verb in ("pause", "resume", "stop", "wait"):
            assert (await served.ask(verb))["error"]["exit"] == 3
        assert (await served.ask("update", policy=FIXED))["error"]["exit"] == 3
        assert (await served.ask("abort"))["error"]["exit"] == 4
        assert (await served.ask("answer", allow=True))["error"]["exit"] == 4
        started = await served.ask("start", objective="look", policy=FIXED)
        assert started["message"] == "the loop is started"
        assert started["status"]["loop"]["objective"] == "look"
        assert (await served.ask("start", objective="look", policy=FIXED))["error"]["exit"] == 4
        await _until(served, lambda: world.place == ("waiting", None))
        assert (await served.ask("pause"))["status"]["loop"]["pauseReason"] == "user"
        assert (await served.ask("wait"))["status"]["loop"]["state"] == "paused"
        assert (await served.ask("resume"))["status"]["loop"]["state"] == "waiting"
        updated = await served.ask("update", policy={"rhythm": 1_200_000, "forMs": 86_400_000})
        assert updated["status"]["loop"]["rhythm"] == {"kind": "fixed", "everyMs": 1_200_000}
        agent.acts.append(talks("hello"))
        assert (await served.ask("say", text="hi", wait=True))["message"] == "hello"
        assert (await served.ask("stop"))["status"]["loop"]["state"] == "stopped"
        assert (await served.ask("close"))["message"] == "the session is closed"

    live(tmp_path, story, agent)


GARBAGE = [
    b"\n",
    b"hello\n",
    b"[]\n",
    b"null\n",
    b"{}\n",
    b'{"v":2,"verb":"status"}\n',
    b'{"v":1,"verb":"_status"}\n',
    b'{"v":1,"verb":"control"}\n',
    b'{"v":1,"verb":7}\n',
    b'{"v":1,"verb":"status","args":[]}\n',
    b"[" * 100_000 + b"\n",
    b'{"a":' * 50_000 + b"\n",
    b'{"v":1,"verb":"status","args":{"x":' + b"9" * 5000 + b"}}\n",
    b"\xff\xfe\x00\n",
    b'\x00{"v":1,"verb":"status"}\n',
]

START: dict[str, Any] = {"objective": "look", "policy": FIXED}
BAD_ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("start", {}),
    ("start", {**START, "objective": 7}),
    ("start", {**START, "objective": " \n"}),
    ("start", {**START, "objective": "x" * (MAX_OBJECTIVE + 1)}),
    ("start", {**START, "policy": None}),
    ("start", {**START, "policy": {}}),
    ("start", {**START, "policy": {"rhythm": "often"}}),
    ("start", {**START, "policy": {"rhythm": True}}),
    ("start", {**START, "policy": {"rhythm": 1.5}}),
    ("start", {**START, "policy": {"rhythm": -600_000}}),
    ("start", {**START, "policy": {**FIXED, "maxIterations": 10**30}}),
    ("start", {**START, "policy": {**FIXED, "forMs": 10**17}}),
    ("start", {**START, "policy": {**FIXED, "maxDelayMs": 10**17}}),
    ("start", {**START, "policy": {"rhythm": 10**17, "forMs": 10**18, "maxDelayMs": 10**18}}),
    ("start", {**START, "afterMs": "1h"}),
    ("start", {**START, "afterMs": -1}),
    ("start", {**START, "afterMs": 10**30}),
    ("update", {}),
    ("update", {"policy": []}),
    ("say", {}),
    ("say", {"text": None}),
    ("say", {"text": "\t "}),
    ("say", {"text": "x" * (4 * 1024 * 1024 + 1)}),
    ("answer", {}),
    ("answer", {"allow": True, "id": {"a": 1}}),
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_gets_a_sentence(tmp_path: Path, data: bytes) -> None:
    async def story(served: Served) -> None:
        answer = await served.raw(data)
        assert answer["ok"] is False
        assert answer["error"]["exit"] == 2
        assert answer["error"]["message"]
        assert (await served.ask("ping"))["ok"] is True

    live(tmp_path, story, _agent())


def test_bad_arguments_change_nothing(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        for verb, args in BAD_ARGUMENTS:
            answer = await served.ask(verb, **args)
            assert answer is not None, (verb, args)
            assert answer["ok"] is False, (verb, args)
            assert answer["error"]["exit"] in (2, 3), (verb, args)
        assert served.world.supervisor.loop is None
        assert served.world.records() == []
        assert served.world.adapter.agents == []

    live(tmp_path, story, _agent())


def test_bad_updates_change_nothing(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.ask("start", **START, afterMs=60_000)
        before = served.world.loop
        for policy in ({}, {"rhythm": "x"}, {"forMs": 10**17}, {"minDelayMs": 0}, {"maxIterations": False}):
            answer = await served.ask("update", policy=policy)
            assert answer is not None, policy
            assert answer["error"]["exit"] == 2, policy
        assert served.world.loop == before

    live(tmp_path, story, _agent())


def test_a_surrogate_in_an_objective(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        answer = await served.raw(
            b'{"v":1,"verb":"start","args":{"objective":"\\ud800","policy":{"rhythm":600000},"afterMs":60000}}\n'
        )
        assert answer["ok"] is True or answer["error"]["exit"] == 2
        assert (await served.ask("ping"))["ok"] is True

    live(tmp_path, story, _agent())


def test_a_line_that_never_ends(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        client = await Client.to(served.path)
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_LINE // (1024 * 1024) + 1):
                await client.send(b"x" * (1024 * 1024))
        with contextlib.suppress(ConnectionError):
            assert (await client.line())["error"]["message"] == f"the request is longer than {MAX_LINE} bytes"
        await client.leave()
        assert (await served.ask("ping"))["ok"] is True

    live(tmp_path, story, _agent())


def test_a_client_that_says_nothing_or_half_a_line(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        silent = await Client.to(served.path)
        half = await Client.to(served.path)
        await half.send(b'{"v":1,"verb":"stop"')
        assert (await served.ask("ping"))["ok"] is True
        await half.leave()
        await silent.leave()

    live(tmp_path, story, _agent())


def test_a_line_that_comes_byte_by_byte(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        client = await Client.to(served.path)
        for byte in b'{"v":1,"verb":"ping"}\n':
            await client.send(bytes([byte]))
        assert (await client.line())["ok"] is True
        await client.leave()

    live(tmp_path, story, _agent())


def test_clients_that_leave_while_they_wait(tmp_path: Path) -> None:
    agent = _agent()
    agent.acts.append(hangs())

    async def story(served: Served) -> None:
        world = served.world
        await served.ask("start", **START)
        await _until(served, lambda: bool(agent.prompts))
        waiting, saying = await served.client("wait"), await served.client("say", text="hi", wait=True)
        following = await served.client("follow")
        assert (await following.line())["ok"] is True
        await _until(served, lambda: world.supervisor.bus.followers == 3)
        for client in (waiting, saying, following):
            await client.leave()
        world.supervisor.touch()
        await _until(served, lambda: world.supervisor.bus.followers == 0)
        assert world.place == ("running", None)
        agent.acts.append(talks("hello"))
        assert (await served.ask("abort"))["message"] == "the turn is aborted"
        await _until(served, lambda: len(agent.prompts) == 2 and not world.supervisor.host.working)
        assert agent.prompts[1].text == "hi"  # what was said is said

    live(tmp_path, story, agent)


def test_a_ping_tells_of_the_close_that_is_to_come(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        handlers = Handlers(served.world.supervisor)
        assert (await handlers.handle(Request("ping"))).message == ""
        served.world.supervisor.ask_to_close("test")
        assert (await handlers.handle(Request("ping"))).message == CLOSING

    live(tmp_path, story, _agent())


def test_follow_ends_with_closed(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.ask("start", **START)
        await _until(served, lambda: served.world.place == ("waiting", None))
        client = await served.client("follow", since=0)
        assert (await client.line())["status"]["loop"]["state"] == "waiting"
        assert (await served.ask("close"))["ok"] is True
        lines = []
        while (line := await client.line()) is not None:
            lines.append(line)
        assert lines[-1] == {"closed": "command"}
        kinds = [line["event"]["type"] for line in lines if "event" in line]
        assert kinds[-1] == "session.shutdown"
        states = [line["status"]["loop"]["state"] for line in lines if "status" in line]
        assert states[-1] == "paused"
        await client.leave()

    live(tmp_path, story, _agent())


def test_status_is_told_to_followers_once_for_each_change(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        world = served.world
        client = await served.client("follow")
        await client.line()
        await _until(served, lambda: world.supervisor.bus.followers == 1)
        await served.ask("start", **START, afterMs=60_000)
        for _ in range(5):
            world.supervisor.touch()
            await served.ask("status")
        await served.ask("pause")
        await served.ask("close")
        lines = []
        while (line := await client.line()) is not None:
            lines.append(line)
        shown = [line["status"] for line in lines if "status" in line]
        seen = [(s["loop"] and s["loop"]["state"], s["session"]["supervisor"]["alive"]) for s in shown]
        assert seen == [(None, True), ("waiting", True), ("paused", True), ("paused", False)]
        await client.leave()

    live(tmp_path, story, _agent())


@pytest.mark.slow
def test_a_follower_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        world = served.world
        stuck = await served.client("follow")
        await _until(served, lambda: world.supervisor.bus.followers == 1)
        stuck.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for n in range(FOLLOWER_QUEUE + 2000):
            world.supervisor.publish("assistant.message_delta", {"text": "x" * 200})
            if n % 500 == 0:
                assert (await served.ask("ping"))["ok"] is True
        assert world.supervisor.bus.followers == 0
        assert (await served.ask("close"))["ok"] is True
        stuck.writer.transport.abort()

    live(tmp_path, story, _agent())


def test_the_socket_is_private_and_made_again_when_it_vanishes(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
        client = await served.client("follow")
        await client.line()
        served.path.unlink()
        served.world.supervisor.touch()
        await _until(served, served.path.is_socket)
        assert (await served.ask("ping"))["ok"] is True
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
        assert served.world.supervisor.bus.followers == 1  # who was there stays
        await client.leave()

    live(tmp_path, story, _agent())


@pytest.mark.slow
def test_the_socket_is_made_again_with_its_directory(tmp_path: Path) -> None:
    """A cleaner took the whole directory, and for a while it cannot be made again."""

    async def story(served: Served) -> None:
        world = served.world
        served.path.unlink()
        folder = served.path.parent
        folder.rmdir()
        folder.write_text("in the way")
        world.supervisor.touch()
        await _until(served, lambda: world.supervisor.status()["session"]["problem"] is not None)
        folder.unlink()
        while not served.path.is_socket():
            world.supervisor.touch()
            await asyncio.sleep(0.05)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (await served.ask("status"))["status"]["session"]["problem"] is None

    live(tmp_path, story, _agent())


PEER = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(json.dumps({"v": 1, "verb": sys.argv[2], "args": {}}).encode() + b"\\n")
    print(s.makefile().readline())
"""


async def _peer(served: Served, verb: str, env: dict[str, str]) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", PEER, str(served.path), verb,
        env=env, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return json.loads(out)


@pytest.mark.slow
def test_the_agent_may_look_and_not_decide(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        await served.ask("start", **START, afterMs=60_000)
        agent, person = {"LOOPSUP_AGENT": "1"}, {"PATH": os.defpath}
        for verb in ("ping", "status"):
            assert (await _peer(served, verb, agent))["ok"] is True
        for verb in ("stop", "close", "answer", "abort", "say", "follow", "wait"):
            answer = await _peer(served, verb, agent)
            assert answer["error"]["exit"] == 4
            assert answer["error"]["message"] == "this comes from the agent itself; only a person may do that"
        assert served.world.place == ("waiting", None)
        served.server._agent_pid = os.getpid  # every child of this process is below "the agent" now
        assert (await _peer(served, "stop", person))["error"]["exit"] == 4
        served.server._agent_pid = lambda: None
        assert (await _peer(served, "stop", person))["ok"] is True

    live(tmp_path, story, _agent())


@pytest.mark.slow
def test_a_peer_that_is_gone_before_it_can_be_looked_at_may_not_decide(tmp_path: Path) -> None:
    script = PEER.replace("print(s.makefile().readline())", "")

    async def story(served: Served) -> None:
        await served.ask("start", **START, afterMs=60_000)
        subprocess.run(  # the loop stands still meanwhile: the request is read after its sender has ended
            [sys.executable, "-I", "-S", "-c", script, str(served.path), "stop"],
            env={"LOOPSUP_AGENT": "1"},
            check=True,
        )
        for _ in range(10):
            await served.ask("ping")
        assert served.world.place == ("waiting", None)

    live(tmp_path, story, _agent())
