"""Two hundred agents, one after another: no survivor, no zombie, no descriptor and no thread is left (T10)."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopsup.core.model import AbortReason
from loopsup.errors import AgentUnableError
from loopsup.ports import (
    Accepted,
    AgentEvents,
    AgentStarted,
    Capabilities,
    Conversation,
    Handover,
    Launch,
    Marker,
    Permissions,
    Prompt,
)
from loopsup.process import Child
from loopsup.shell import leftover
from loopsup.shell.carrier import Carriers
from loopsup.shell.link import AgentLink
from loopsup.shell.slot import AgentSlot
from tests.support.fake_agent import FakeAdapter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("setsid") is None, reason="the tool leaves its session by setsid(1), which macOS does not have"
    ),
    pytest.mark.skipif(
        not Path("/proc/self/fd").is_dir(), reason="open descriptors are counted in /proc, which only Linux has"
    ),
]

CYCLES = 200
MARKED = f"two-hundred-agents-{os.getpid()}"
# One tool in the background of the agent, and one that left its session and lost its parent. Then it says hello.
TOOLS = "sleep 600 >/dev/null 2>&1 & (setsid sleep 600 >/dev/null 2>&1 &)"
AGENT = f"{TOOLS}; echo up; exec cat"
FAILING = f"{TOOLS}; exit 3"
WAYS = ("close", "killed", "stopped", "fails")


class Cat:
    """An agent that is `cat` with something running beside it."""

    def __init__(self, launch: Launch, events: AgentEvents) -> None:
        self._launch, self._events = launch, events
        self._up = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._closing = False
        self.child: Child | None = None

    async def start(self) -> AgentStarted:
        launch = self._launch
        self.child = await Child.spawn(
            ["sh", "-c", *launch.args],
            cwd=launch.cwd,
            env=launch.env,
            on_line=lambda _: self._up.set(),
            on_stderr=lambda _: None,
        )
        self._watching = asyncio.create_task(self._watch(self.child))
        await self._up.wait()
        if self.child.returncode is not None:
            raise AgentUnableError("it ended")
        return AgentStarted(Conversation("c", None, launch.cwd))

    async def _watch(self, child: Child) -> None:
        reason = await child.wait()
        self._up.set()
        if not self._closing:
            self._events.lost(reason)

    async def close(self) -> None:
        self._closing = True
        if self.child is not None:
            await self.child.close()
        if self._watching is not None:
            self._watching.cancel()

    async def prompt(self, prompt: Prompt) -> Handover:
        return Accepted()

    async def abort(self, reason: AbortReason) -> None: ...
    async def answer(self, question_id: str, allow: bool, text: str) -> None: ...
    async def mark(self, marker: Marker) -> None: ...
    async def announce(self, event: Mapping[str, Any]) -> None: ...

    @property
    def pid(self) -> int | None:
        return None if self.child is None or self.child.returncode is not None else self.child.pid


class CatAdapter(FakeAdapter):
    """Makes them."""

    def agent(self, launch: Launch, events: AgentEvents) -> Any:
        self.cat = Cat(launch, events)
        return self.cat


class Link(AgentLink):
    """Tells when the agent was lost."""

    def __init__(self, slot: AgentSlot) -> None:
        self.gone = asyncio.Event()
        self._slot = slot

    def cut(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        self._slot.forget()
        self.gone.set()


def held() -> tuple[int, int, set[psutil.Process]]:
    """Descriptors, threads, and processes that are ours or have the mark."""
    ours = set(psutil.Process().children(recursive=True)) | leftover.marked(MARKED)
    return len(os.listdir("/proc/self/fd")), threading.active_count(), ours


async def at_rest() -> tuple[int, int, set[psutil.Process]]:
    """The same, once it does not change any more: a thread that has seen a process end is over a moment later."""
    gc.collect()  # what an earlier test left open must not be closed within this one
    seen = held()
    while True:
        await asyncio.sleep(0.5)
        if (now := held()) == seen and not any("waitpid" in thread.name for thread in threading.enumerate()):
            return now
        seen = now


def test_two_hundred_agents_leave_nothing(tmp_path: Path) -> None:
    adapter = CatAdapter(capabilities=Capabilities(native_tool=True))
    text = {"now": AGENT}
    env = {**os.environ, leftover.MARK: MARKED}
    log: list[str] = []

    def launch() -> Launch:
        return Launch("c", None, tmp_path, None, (text["now"],), env, tmp_path, tmp_path, Permissions(), log.append)

    async def cycle(slot: AgentSlot, way: str) -> None:
        link = Link(slot)
        text["now"] = FAILING if way == "fails" else AGENT
        if way == "fails":
            with pytest.raises(AgentUnableError):
                await slot.start(link)
            return
        await slot.start(link)
        if way != "close":
            assert slot.pid is not None
            os.kill(slot.pid, signal.SIGKILL if way == "killed" else signal.SIGTERM)
            await asyncio.wait_for(link.gone.wait(), 60)
        await slot.empty()

    async def main() -> None:
        slot = AgentSlot(adapter, launch, log.append, Carriers("/nowhere", "cats"))
        for way in WAYS:
            await cycle(slot, way)
        before = await at_rest()
        for number in range(CYCLES):
            await cycle(slot, WAYS[number % len(WAYS)])
        assert before[2] == set()
        assert held()[2] == set()
        async with asyncio.timeout(60):  # a pipe is closed by the loop's next turns
            while held() != before:
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert not [line for line in log if "could not" in line]
