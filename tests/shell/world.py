"""One session in this process: the real supervisor, keeper, host and files, with a scripted agent."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from loopsup.clock import Clock
from loopsup.core.effects import Reply
from loopsup.core.events import Event, Start
from loopsup.core.model import Loop, Moment, Paused, Policy
from loopsup.core.reaper import Reaping
from loopsup.core.step import step
from loopsup.core.watch import DEFAULT_SILENCE_MS
from loopsup.errors import StorageError
from loopsup.ports import Launch, Permissions
from loopsup.shell.handlers import Handlers
from loopsup.shell.keeper import Keeper
from loopsup.shell.run import Message
from loopsup.shell.supervisor import Supervisor
from loopsup.store import eventlog
from loopsup.store.eventlog import EventWriter
from loopsup.store.identity import Identity
from loopsup.store.journal import JournalAppender, read_all
from loopsup.wire.control import Request, Response
from loopsup.wire.journal import Record
from tests.support.fake_agent import FakeAdapter
from tests.support.script import policy_of
from tests.support.virtual import VirtualClock, run_virtual

LONG_S = 400 * 24 * 3600.0  # further than any timer of a test


class FullDisk:
    """A journal or event log whose disk is full while `full` is set; the calls that failed are counted."""

    def __init__(self, real: JournalAppender | EventWriter) -> None:
        self._real = real
        self.full = False
        self.failed = 0
        self.allow = 0

    @property
    def next_seq(self) -> int:
        return self._real.next_seq

    def append(self, *args: Any, **named: Any) -> Any:
        if self.full and self.allow == 0:
            self.failed += 1
            raise StorageError("cannot write the file: No space left on device")
        self.allow = max(0, self.allow - 1)
        return self._real.append(*args, **named)

    def close(self) -> None:
        self._real.close()


class World:
    """`async with World(...)`: the session is open and runs; at the end it is closed in good order.

    `recheck_s` None: no look at the clocks between timers (nothing suspends this machine), so that every wake of
    the supervisor is one it armed.
    """

    def __init__(
        self,
        clock: Clock,
        folder: Path,
        adapter: FakeAdapter,
        *,
        permissions: Permissions = Permissions(),
        silence_ms: int = DEFAULT_SILENCE_MS,
        recheck_s: float | None = None,
        hold_open: bool = True,
        reaping: Reaping | None = None,
    ) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.clock = clock
        self.folder = folder
        self.adapter = adapter
        self.logged: list[str] = []
        self.ended: str | None = None
        own = f"6f1f-{os.getpid()}"  # some tests look for processes that are marked with it
        identity = Identity("night", own, "fake", str(folder), str(folder / "s.sock"), clock.now().wall)
        self.supervisor = Supervisor(
            identity, folder, adapter, self._launch, permissions, silence_ms, clock, 4711, self.logged.append
        )
        self.supervisor.recheck_s = LONG_S if recheck_s is None else recheck_s
        self.supervisor.vacancy.hold_open = hold_open
        self.supervisor.vacancy.settings = reaping or Reaping()
        self.handlers = Handlers(self.supervisor)
        self.journal = FullDisk(JournalAppender.open(folder))
        self.log = FullDisk(EventWriter.open(folder))
        self._main: asyncio.Task[None] | None = None

    def _launch(self, supervisor: Supervisor) -> Launch:
        who = supervisor.identity
        return Launch(
            who.id, None, self.folder, None, (), {}, self.folder, self.folder, Permissions(), self.logged.append
        )

    async def __aenter__(self) -> Self:
        self.supervisor.bus.attach(cast("EventWriter", self.log))
        journal = cast("JournalAppender", self.journal)
        tail = cast("JournalAppender", self.journal._real).tail
        self.supervisor.open(Keeper(journal, tail.loop, self.clock, self.supervisor.on_change), 0)
        self._main = asyncio.create_task(self._serve())
        await asyncio.sleep(0)
        return self

    async def _serve(self) -> None:
        self.ended = await self.supervisor.run()
        await self.supervisor.close(self.ended)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if error is None:
            await self.close("test")
        elif self._main is not None:
            self._main.cancel()
        self.supervisor.bus.close()
        self.journal.close()

    async def close(self, reason: str = "test") -> None:
        self.supervisor.ask_to_close(reason)
        await self.over()

    async def over(self) -> None:
        """Until the session has closed."""
        assert self._main is not None
        await self._main

    # ---- what tests do ------------------------------------------------------------------------------

    def start(self, policy: Policy | None = None, *, after_ms: int | None = None, objective: str = "look") -> Reply:
        idle = self.supervisor.host.idle
        return self.supervisor.command(Start(str(uuid.uuid4()), objective, policy or policy_of(), after_ms, idle))

    def command(self, event: Event) -> Reply:
        return self.supervisor.command(event)

    def say(self, text: str) -> asyncio.Future[str]:
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.supervisor.host.say(Message(text, str(uuid.uuid4()), waiter))
        return waiter

    async def ask(self, verb: str, **args: Any) -> Response:
        return await self.handlers.handle(Request(verb, args))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until the supervisor has seen to it that `condition` holds."""
        async with self.supervisor.changed:
            await self.supervisor.changed.wait_for(condition)

    # ---- what tests see -----------------------------------------------------------------------------

    @property
    def loop(self) -> Loop:
        assert self.supervisor.loop is not None
        return self.supervisor.loop

    @property
    def place(self) -> tuple[str, str | None]:
        reason = self.loop.phase.reason.value if isinstance(self.loop.phase, Paused) else None
        return self.loop.state.value, reason

    @property
    def now(self) -> Moment:
        return self.clock.now()

    def records(self) -> list[Record]:
        found = list(read_all(self.folder))
        assert all(isinstance(record, Record) for record in found)
        return cast("list[Record]", found)

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in eventlog.read(self.folder) if not kinds or event["type"] in kinds]

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events()]

    def notices(self) -> list[str]:
        return [event["data"]["message"] for event in self.events("loop.notice")]


def replay(records: list[Record]) -> None:
    """Each recorded event, at its own instant, gives the recorded loop; numbers have no gap."""
    loop: Loop | None = None
    for number, record in enumerate(records, 1):
        assert record.seq == number
        loop = step(loop, record.event, record.now).loop
        assert loop == record.loop


def night(
    folder: Path,
    story: Callable[[World, VirtualClock], Coroutine[Any, Any, None]],
    adapter: FakeAdapter,
    **named: Any,
) -> World:
    """Run `story` on a virtual clock in an open session, close it, and replay its journal."""
    worlds: list[World] = []

    async def main(clock: VirtualClock) -> None:
        async with World(clock, folder / "session", adapter, **named) as world:
            worlds.append(world)
            await story(world, clock)

    run_virtual(main)
    replay(worlds[0].records())
    return worlds[0]
