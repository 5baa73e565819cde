"""The supervisor killed at each edge of its work: whatever it was doing, nothing happens twice and nothing is hidden.

The real supervisor on a virtual clock. At the n-th edge everything stops where it stands: before, in the middle of
and after every line it writes, before and after every prompt, decision, settlement and hook. Then a new one opens
the same files and a person resumes, until the loop has come to its end (D-13, D-18, D-42, D-44; T3).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from loopsup.core.events import DecisionCalled, Resume
from loopsup.core.model import Loop, Paused, Running, State
from loopsup.core.step import step
from loopsup.errors import StorageError
from loopsup.ports import Accepted, Handover, Prompt
from loopsup.shell import performer
from loopsup.shell.hook import HookResult
from loopsup.shell.keeper import Keeper
from loopsup.store import eventlog
from loopsup.store.eventlog import EventWriter, recount
from loopsup.store.hooks import Hook
from loopsup.store.journal import JournalAppender, read_all, read_tail
from loopsup.wire import events as words
from loopsup.wire.journal import Record
from loopsup.wire.status import without_owner
from tests.shell.world import World
from tests.support.fake_agent import FakeAdapter, FakeAgent
from tests.support.script import call, policy_of
from tests.support.virtual import VirtualClock, VirtualLoop

PAIRS = 40  # how often two deaths in a row are tried, at random places


class Death(SystemExit):
    """`kill -9`: nobody catches it, and it leaves the event loop at once."""


@dataclass
class Fate:
    """Counts the edges, and lets the process die at one of them (0: never)."""

    at: int = 0
    dead: bool = False
    passed: list[str] = field(default_factory=list)

    def edge(self, what: str) -> None:
        if self.dead:  # a corpse writes nothing
            raise StorageError("dead")
        self.passed.append(what)
        if self.next_but(0):
            self.dead = True
            raise Death(what)

    def next_but(self, more: int) -> bool:
        """Whether the edge so many ahead is the last one."""
        return len(self.passed) + more == self.at


class Dying:
    """A file of lines whose writer may die before, within and after each of them."""

    def __init__(self, real: JournalAppender | EventWriter, path: Path, fate: Fate, name: str) -> None:
        self._real, self._path, self._fate, self._name = real, path, fate, name

    @property
    def next_seq(self) -> int:
        return self._real.next_seq

    def append(self, *args: Any, **named: Any) -> Any:
        self._fate.edge(f"before the {self._name}")
        size = self._path.stat().st_size
        made = self._real.append(*args, **named)
        if self._fate.next_but(1):  # half of the line had reached the disk
            os.truncate(self._path, size + (self._path.stat().st_size - size) // 2)
        self._fate.edge(f"within the {self._name}")
        self._fate.edge(f"after the {self._name}")
        return made

    def close(self) -> None:
        self._real.close()


class Agent:
    """Continues, forgets to decide, continues when reminded, completes; it remembers what it was given."""

    def __init__(self) -> None:
        self.heard: list[Prompt] = []
        self.accepted: list[str] = []
        self.fate = Fate()

    async def act(self, agent: FakeAgent, prompt: Prompt) -> Handover:
        self.fate.edge("before the acceptance")
        self.heard.append(prompt)
        number = len(self.heard)
        agent.work(self._turn(agent, prompt, number))
        await asyncio.sleep(0.1)
        self.fate.edge("after the acceptance")
        return Accepted()

    async def _turn(self, agent: FakeAgent, prompt: Prompt, number: int) -> None:
        await asyncio.sleep(1)
        agent.begin_turn()
        await asyncio.sleep(1)
        if number != 2:
            self.fate.edge("before the decision")
            verdict = await agent.decide(prompt.stamp, call("continue" if number < 4 else "complete"))
            if verdict.accepted:
                self.accepted.append("continue" if number < 4 else "complete")
            self.fate.edge("after the decision")
        await asyncio.sleep(1)
        agent.end_turn(text="done")
        self.fate.edge("before the settlement")
        agent.settle()


class Life(World):
    """A supervisor opened as the real one is, on files that may be torn."""

    def __init__(self, clock: VirtualClock, folder: Path, agent: Agent, fate: Fate) -> None:
        super().__init__(clock, folder, FakeAdapter(default=agent.act))
        self.fate = fate
        self.opened = cast("JournalAppender", self.journal._real)
        self.lines: Any = Dying(self.opened, folder / "journal.jsonl", fate, "record")
        self.told: Any = Dying(cast("EventWriter", self.log._real), folder / "events.jsonl", fate, "event")

    async def __aenter__(self) -> Life:
        supervisor = self.supervisor
        supervisor.bus.attach(self.told)
        left = recount(self.folder, self.opened.tail.loop)
        for data in left.ends:
            supervisor.publish(words.TURN_END, data, iteration=left.iteration)
        supervisor.open(Keeper(self.lines, self.opened.tail.loop, self.clock, supervisor.on_change), left.turns)
        self._main = asyncio.create_task(self._serve())
        await asyncio.sleep(0)
        return self


def bury(loop: asyncio.AbstractEventLoop) -> None:
    """What a killed process was doing is over without a word; its coroutines must be, too."""
    loop.set_exception_handler(lambda *_: None)  # nobody asks any more what became of them
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.call_soon(loop.stop)
        with contextlib.suppress(Death):  # it goes on to whoever waited for the task it struck
            loop.run_forever()
    loop.close()


class Story:
    """One session over as many lives as it takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.agent = Agent()
        self.deaths: list[str] = []
        self.hooked: list[str] = []

    def live(self, at: int = 0) -> Fate:
        """Until the loop has ended, or death."""
        fate = self.agent.fate = Fate(at)
        self._hooks(fate)
        loop = VirtualLoop(self.clock)
        try:
            loop.run_until_complete(self._life(fate))
        except Death as death:
            self.deaths.append(str(death))
            self._looked_at()
        finally:
            bury(loop)
            with contextlib.suppress(OSError):
                self.life.opened.close()
                self.life.log.close()
        return fate

    async def _life(self, fate: Fate) -> None:
        self.life = Life(self.clock, self.folder, self.agent, fate)
        async with self.life as life:
            if life.supervisor.loop is None:
                life.start(policy_of("10m"))
            elif not life.loop.terminal:
                assert isinstance(life.loop.phase, Paused)  # never re-armed by itself
                assert life.command(Resume(idle=life.supervisor.host.idle)).ok
            await life.until(lambda: life.loop.terminal or life.ended is not None)
            assert life.ended is None, (
                life.logged
            )  # a fault of our own closes the session, and nothing comes any more

    def _hooks(self, fate: Fate) -> None:
        async def run_hook(path: str, event: bytes, **_: object) -> HookResult:
            fate.edge("before the hook")
            self.hooked.append(event.decode())
            fate.edge("after the hook")
            return HookResult(path, exit=0)

        self.run_hook = run_hook

    def _looked_at(self) -> None:
        """What anybody sees who looks at the files now: never a loop that seems to go on."""
        loop = without_owner(read_tail(self.folder).loop, self.clock.now())
        assert loop is None or isinstance(loop.phase, Paused) or loop.terminal

    # ---- what must hold in the end ----------------------------------------------------------------------

    def records(self) -> list[Record]:
        return [record for record in read_all(self.folder) if isinstance(record, Record)]

    def check(self) -> None:
        records = self.records()
        self._replay(records)
        loops = [record.loop for record in records if record.loop is not None]
        last = loops[-1]
        assert last.state is State.COMPLETED
        assert [loop.iteration_count for loop in loops] == sorted(loop.iteration_count for loop in loops)
        self._check_prompts(records)
        assert last.iteration_count <= len(
            {prompt.stamp.iteration for prompt in self.agent.heard if prompt.stamp}
        ) + len(self.deaths)
        decided = [record.loop.last_decision.verb for record in records if isinstance(record.event, DecisionCalled)]
        assert decided[-1] == "complete"
        assert not Counter(self.agent.accepted) - Counter(decided)  # what the agent was told is kept
        assert len(self.hooked) <= 1
        shown = [event for event in eventlog.read(self.folder) if event["type"] == words.LOOP_ATTENTION]
        assert len(shown) <= 1
        if not self.deaths:
            assert len(self.hooked) == len(shown) == 1
        turns = Counter(event["type"] for event in eventlog.read(self.folder))
        assert turns[words.TURN_START] == turns[words.TURN_END]

    def _replay(self, records: list[Record]) -> None:
        """As `world.replay`, but a torn line keeps its number to itself."""
        loop: Loop | None = None
        for before, record in itertools.pairwise([None, *records]):
            assert record is not None
            assert before is None or before.seq < record.seq
            loop = step(loop, record.event, record.now).loop
            assert loop == record.loop

    def _check_prompts(self, records: list[Record]) -> None:
        """Each one at most once, and none of which the journal did not know before."""
        stamps = [prompt.stamp for prompt in self.agent.heard]
        assert len(set(stamps)) == len(stamps)
        firsts = [prompt.stamp.iteration for prompt in self.agent.heard if prompt.stamp and prompt.origin == "loop"]
        assert len(set(firsts)) == len(firsts)
        written = {
            record.loop.stamp() for record in records if record.loop and isinstance(record.loop.phase, Running)
        }
        assert set(stamps) <= written


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> list[Story]:
    """The stories of this test; their hook runs no process."""
    stories: list[Story] = []

    async def run_hook(*args: Any, **named: Any) -> HookResult:
        return await stories[-1].run_hook(*args, **named)

    monkeypatch.setattr(performer, "find_hook", lambda: Hook("/hook", "a test"))
    monkeypatch.setattr(performer, "run_hook", run_hook)
    return stories


def told(hooked: list[Story], folder: Path) -> Story:
    folder.mkdir(mode=0o700)
    hooked.append(Story(folder))
    return hooked[-1]


def test_a_life_without_death(tmp_path: Path, hooked: list[Story]) -> None:
    story = told(hooked, tmp_path / "s")
    edges = Counter(story.live().passed)
    story.check()
    assert [prompt.origin for prompt in story.agent.heard] == ["loop", "loop", "protocol", "loop"]
    assert {"before the hook", "after the hook", "within the record", "before the acceptance"} <= set(edges)


@pytest.mark.slow
@pytest.mark.timeout(600)  # an alarm inside the virtual loop would look like a supervisor that is stuck
def test_killed_at_every_edge(tmp_path: Path, hooked: list[Story]) -> None:
    edges = len(told(hooked, tmp_path / "all").live().passed)
    seen = set()
    for at in range(1, edges + 1):
        story = told(hooked, tmp_path / str(at))
        story.live(at)
        story.live()
        assert len(story.deaths) == 1
        seen.add(story.deaths[0])
        story.check()
    assert len(seen) == 13


@pytest.mark.slow
@pytest.mark.timeout(600)  # an alarm inside the virtual loop would look like a supervisor that is stuck
def test_killed_twice_anywhere(tmp_path: Path, hooked: list[Story]) -> None:
    edges = len(told(hooked, tmp_path / "all").live().passed)
    dice = random.Random(7)
    for number in range(PAIRS):
        story = told(hooked, tmp_path / str(number))
        for _ in range(2):
            story.live(dice.randint(1, edges))
        story.live()
        story.check()
