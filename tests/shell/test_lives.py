"""Case 191 for the supervisor itself: random lives of a session, each of which comes to its end.

The real supervisor, host, keeper and files on a virtual clock, an agent that does whatever an agent can do wrong, and
people, disks and clocks that act at any moment. A death of the supervisor is a copy of its files as they lie there.
What must hold is in `Books`; that nothing gets stuck is shown by leading every life to the end of its loop.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE, PROTOCOL_RETRY_CEILING
from loopsup.ports import Doing, Handover, Marker, Prompt
from loopsup.shell.keeper import Keeper
from loopsup.store.eventlog import recount
from loopsup.store.journal import JournalAppender
from loopsup.wire.events import CONTINUITY_RECOVERY, SESSION_IDLE, TURN_END, TURN_START
from tests.shell.world import World, replay
from tests.support.fake_agent import (
    Act,
    FakeAdapter,
    FakeAgent,
    dies,
    errs,
    hangs,
    late,
    never,
    raises,
    refuses,
    says,
    settles,
    shrugs,
    start_fails,
    start_takes,
    talks,
    tries,
    without,
)
from tests.support.virtual import VirtualClock, run_virtual

QUICK = [132, 133, 139]  # seeds of short lives, for the fast suite
MORE = [*range(6), 113, 120, 150, 197]  # with those that once found a fault
MOVES = 30
SPANS = [0.0005, 0.3, 2, 12, 40, 70, 600, 1000, 3600, 9 * 3600]
POLICY = {"rhythm": 10 * MINUTE, "minDelayMs": MINUTE, "maxDelayMs": DAY, "forMs": 2 * DAY, "maxIterations": 30}


ACTS: list[Callable[[], Act]] = [
    *[lambda: says("continue"), lambda: says("continue", lasts_s=90)] * 4,
    lambda: says("complete", lasts_s=5),
    lambda: says("fail"),
    lambda: says("block", lasts_s=1),
    talks,
    lambda: talks(lasts_s=700),
    lambda: tries({}, None),
    hangs,
    lambda: hangs(Doing.TOOL),
    lambda: hangs(Doing.TOOL, verb="continue"),
    lambda: hangs(verb="complete"),
    refuses,
    lambda: refuses("busy", busy=True),
    shrugs,
    lambda: late(says("continue"), 20),
    lambda: late(refuses(), 5),
    never,
    lambda: never(says("continue")),
    lambda: raises(RuntimeError("boom")),
    dies,
    lambda: dies(turn=False, after_s=3),
    errs,
    settles,
]


class Polite(FakeAgent):
    """Sees to it that nobody gives it a prompt while it works."""

    async def prompt(self, prompt: Prompt) -> Handover:
        assert not self.at_work, f"two prompts at once: {prompt}"
        return await super().prompt(prompt)


@dataclass
class Adapter(FakeAdapter):
    def agent(self, launch: Any, events: Any) -> FakeAgent:
        agent = Polite(self, launch, events)
        self.agents.append(agent)
        return agent


class Life(World):
    """Opened as the real one is: what a dead supervisor left is counted first."""

    async def __aenter__(self) -> Life:
        supervisor, journal = self.supervisor, cast("JournalAppender", self.journal._real)
        supervisor.bus.attach(cast("Any", self.log))
        left = recount(self.folder, journal.tail.loop)
        for data in left.ends:
            supervisor.publish(TURN_END, data, iteration=left.iteration)
        keeper = Keeper(cast("Any", self.journal), journal.tail.loop, self.clock, supervisor.on_change)
        supervisor.open(keeper, left.turns)
        self._main = asyncio.create_task(self._serve())
        await asyncio.sleep(0)
        return self


@dataclass
class Books:
    """What the life of one supervisor said, line by line."""

    open: int = 0

    def line(self, line: bytes | None) -> None:
        event = json.loads(line or b"{}").get("event", {})
        match event.get("type"):
            case "assistant.turn_start":
                self.open += 1
            case "assistant.turn_end":
                self.open -= 1
            case "session.idle":
                assert self.open == 0, "idle in a turn"
        assert 0 <= self.open <= 1, "two turns at once"


@dataclass
class Session:
    """One session and all its supervisors."""

    folder: Path
    dice: random.Random
    clock: VirtualClock
    adapter: Adapter = field(
        default_factory=lambda: Adapter(default=says("continue"), capabilities=without(branches=True))
    )
    said: list[asyncio.Future[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    lives: int = 0

    async def play(self) -> None:
        ending = self.dice.choice(["close", "crash"])
        while not await self.live(ending, last=self.lives == 2):
            ending = self.dice.choice(["close", "crash"])

    async def live(self, ending: str, *, last: bool) -> bool:
        """One supervisor; True: it was the last one."""
        self.lives += 1
        async with Life(self.clock, self.folder, self.adapter) as world:
            self.world, self.books = world, Books()
            world.supervisor.bus.subscribe(None).put = self.books.line  # type: ignore[method-assign]
            for _ in range(MOVES // 3):
                await self.move()
            if last:
                await self.lead_to_the_end()
            elif ending == "crash":
                gone, self.folder = self.folder, self.folder.with_name(f"life-{self.lives}")
                shutil.copytree(gone, self.folder)
        self.check()
        return last

    async def move(self) -> None:
        moves: list[Callable[[], Awaitable[Any]]] = [
            *[self.time] * 8,
            *[self.script] * 8,
            *[self.start] * 3,
            self.say,
            self.agent_dies,
            self.agent_works,
            self.agent_starts_badly,
            self.full_disk,
            self.clock_jumps,
            self.branch,
            *[lambda: self.ask("pause"), lambda: self.ask("resume"), lambda: self.ask("resume")],
            *[lambda: self.ask("stop"), lambda: self.ask("abort")],
            lambda: self.ask("update", policy={"rhythm": self.dice.choice([MINUTE, HOUR])}),
            lambda: self.ask("update", policy={"maxIterations": self.dice.choice([1, 5, 50])}),
            lambda: self.ask("update", policy={"forMs": self.dice.choice([HOUR, 5 * DAY])}),
        ]
        move = self.dice.choice(moves)
        self.told.append(getattr(move, "__name__", "?"))
        await move()

    # ---- who acts -----------------------------------------------------------------------------------

    async def time(self) -> None:
        await asyncio.sleep(self.dice.choice(SPANS))

    async def script(self) -> None:
        self.adapter.acts.append(self.dice.choice(ACTS)())

    async def ask(self, verb: str, **args: Any) -> Any:
        return await self.world.ask(verb, **args)

    async def start(self) -> None:
        await self.ask("start", objective="look", policy=POLICY)

    async def say(self) -> None:
        self.said.append(self.world.say("hello"))

    async def agent_dies(self) -> None:
        if self.world.supervisor.host.slot.up:
            self.adapter.newest.die()

    async def agent_works(self) -> None:
        host, mine = self.world.supervisor.host, self.adapter.agents[-1:]
        if host.slot.up and host.run is None:
            mine[0].events.busy()
            mine[0].begin_turn()
            mine[0].at_work = True
            await asyncio.sleep(self.dice.choice([0, 5, 700]))
            if mine[0].at_work and mine[0] is self.adapter.newest and host.slot.up:
                mine[0].end_turn()
                mine[0].settle()

    async def agent_starts_badly(self) -> None:
        self.adapter.starts.append(self.dice.choice([start_fails(RuntimeError("not there")), start_takes(30)]))

    async def full_disk(self) -> None:
        self.world.journal.full = True
        await asyncio.sleep(self.dice.choice(SPANS))
        self.world.journal.full = False

    async def clock_jumps(self) -> None:
        self.clock.move_wall(self.dice.choice([-HOUR, -1, 2 * HOUR, DAY]))
        self.world.supervisor.touch()

    async def branch(self) -> None:
        loop, host = self.world.supervisor.loop, self.world.supervisor.host
        if host.slot.up and not host.working:
            seq = self.dice.randint(1, max(1, len(self.world.records())))
            self.adapter.newest.events.branch(None if loop is None else Marker(loop.id, seq))

    # ---- the end ------------------------------------------------------------------------------------

    async def lead_to_the_end(self) -> None:
        """From wherever it stands: nothing hangs, and a willing agent completes it."""
        world, host = self.world, self.world.supervisor.host
        self.adapter.acts.clear()
        self.adapter.starts.clear()
        self.adapter.default = says("complete")
        await asyncio.sleep(120)
        await self.ask("abort")
        await asyncio.sleep(120)
        assert not host.working, f"stuck: {host.run}, {world.supervisor.loop}"
        assert all(one.done() for one in self.said), "somebody waits for an answer for ever"
        if world.supervisor.loop is None or world.loop.terminal:
            await self.start()
        now = (self.clock.now().wall - world.loop.started_at) // DAY + 2
        if not world.loop.terminal:
            await self.ask(
                "update", policy={"forMs": max(2, now) * DAY, "maxIterations": 1000, "rhythm": 10 * MINUTE}
            )
            await self.ask("resume")
            await asyncio.sleep(5 * 3600)  # clocks were set back over a wake that was kept
        assert world.place == ("completed", None), f"{world.loop}, {host.run}, working {host.working}, {self.told}"

    # ---- what must hold -----------------------------------------------------------------------------

    def check(self) -> None:
        world = self.world
        records = world.records()
        replay(records)
        assert self.books.open == 0
        turns = Counter(event["type"] for event in world.events())
        assert turns[TURN_START] == turns[TURN_END]
        assert turns[SESSION_IDLE] == 0
        loops = {record.loop.id: record.loop for record in records if record.loop is not None}
        assert all(loop.protocol_retry_count <= PROTOCOL_RETRY_CEILING for loop in loops.values())
        again = turns[CONTINUITY_RECOVERY]  # an interrupted iteration is handed over once more, and counts once
        for loop in loops.values():
            assert loop.prompts_sent <= loop.iteration_count + loop.protocol_retry_count + again, loop


def lead(folder: Path, seed: int) -> Session:
    sessions: list[Session] = []

    async def main(clock: VirtualClock) -> None:
        first = folder / "life-0"
        sessions.append(Session(first, random.Random(seed), clock))
        await sessions[0].play()

    run_virtual(main)
    for one in sessions[0].said:
        one.exception()
    return sessions[0]


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
def test_a_random_life_comes_to_its_end(tmp_path: Path, seed: int) -> None:
    lead(tmp_path, seed)
