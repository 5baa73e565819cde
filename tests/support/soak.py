"""`make soak`: a thousand wakes while supervisors, agents and clients are killed at random; the books must balance.

Several sessions of the demo agent under a quick clock that all processes share. What is done to them follows from
the seed, when it strikes does not: a failure is looked for with the same seed and the kept folder, not replayed.

The ledger has two independent sources: the journals say which wakes fell due and what became of each, the agents'
own records say which prompts really arrived. A wake that was handed over to an agent that never got it must be
told as an interruption; every other one is delivered, folded into a later one, skipped by the misfire policy, or
still ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loopsup.clock import mono_ms, wall_ms
from loopsup.core.misfire import Done, Missed
from loopsup.core.model import Loop, Paused, Queued, Waiting
from loopsup.errors import LoopsupError
from loopsup.store.journal import read_all
from loopsup.store.lock import probe
from loopsup.wire.journal import Record
from tests.support.demo_words import ON
from tests.support.world import World, a_world

RATE = 60  # an interval of 20 s is a third of a second
EVERY_MS = 20_000
MISFIRES = ("once", "skip", "1m")  # one policy for each session in turn
STALLED_S = 120.0  # nothing delivered for this long on a loaded machine: it hangs
BEHAVIOURS = 5000  # more prompts than a soak hands over
_ITERATION = re.compile(r"^Iteration: (\d+) of ", re.MULTILINE)


@dataclass
class Ledger:
    """What fell due, by what became of it."""

    delivered: int = 0
    coalesced: int = 0
    skipped: int = 0
    interrupted: int = 0
    pending: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def due(self) -> int:
        return self.delivered + self.coalesced + self.skipped + self.interrupted + self.pending


class Soak:
    """The sessions, and what is done to them."""

    def __init__(self, world: World, seed: int, wakes: int, sessions: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.wakes = wakes
        self.names = [f"s{number}" for number in range(1, sessions + 1)]
        self.done: Counter[str] = Counter()
        self.clients: list[subprocess.Popen[bytes]] = []
        world.env["LOOPSUP_CLOCK_RATE"] = f"{RATE}@{wall_ms()}"

    # ---- the course -------------------------------------------------------------------------------------

    def run(self) -> None:
        for name, misfire in zip(self.names, itertools.cycle(MISFIRES), strict=False):
            self._start(name, misfire)
        count, moved = 0, mono_ms()
        while (now := sum(len(self.heard(name)) for name in self.names)) < self.wakes:
            if now > count:
                count, moved = now, mono_ms()
            if mono_ms() - moved > STALLED_S * 1000:
                raise AssertionError(f"nothing was delivered for {STALLED_S:g} s\n{self._state()}")
            self._round(self.dice.choice(self.names))
            time.sleep(self.dice.uniform(0, 0.3))
        self._finish()

    def _start(self, name: str, misfire: str) -> None:
        script = self.world.script([self._behaviour() for _ in range(BEHAVIOURS)], f"{name}.json")
        rhythm = ("--every", f"{EVERY_MS // 1000}s", "--min-delay", "1s", "--for", "360d", "--max-iterations", "9999")
        where = ("--detach", "--agent", "demo", "--session", name)
        self.world.ok("start", *where, "--misfire", misfire, *rhythm, f"soak {name}", "--", "--script", str(script))

    def _behaviour(self) -> dict[str, object]:
        """Mostly a decision at once; sometimes slower, so that every edge is open for a while."""
        act: dict[str, object] = {"do": "decide", "args": ON}
        for what in ("slow_ms", "linger_ms"):
            if self.dice.random() < 0.2:
                act[what] = self.dice.randint(1, 300)
        return act

    def _round(self, name: str) -> None:
        """One blow, or help for a session that needs it."""
        pid = self._supervisor(name)
        if pid is None:
            self._resume(name)
            return
        self._tend(name)
        acts: dict[Callable[[str, int], None], int] = {
            self._nothing: 30,
            self._kill_supervisor: 6,
            self._kill_agent: 4,
            self._kill_both: 2,
            self._stop_for_a_moment: 2,
            self._pause: 2,
            self._say: 3,
            self._come: 5,
            self._go: 5,
        }
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        self.done[act.__name__.strip("_")] += 1
        act(name, pid)

    def _tend(self, name: str) -> None:
        with contextlib.suppress(LoopsupError, OSError):
            status = self.world.ask("status", name)
            if status["loop"]["state"] == "paused":
                self.world.ask("resume", name)
                self.done["resume"] += 1

    def _resume(self, name: str) -> None:
        """Sometimes two come at once."""
        twice = self.dice.random() < 0.2
        started = [self._command("resume", name) for _ in range(1 + twice)]
        codes = sorted(process.wait(timeout=STALLED_S) for process in started)
        assert codes[0] == 0, f"resume of {name}: {codes}\n{self.world.log(name)}"
        assert set(codes) <= {0, 4, 5}
        self.done["reopen"] += 1

    # ---- blows ------------------------------------------------------------------------------------------

    def _nothing(self, name: str, pid: int) -> None: ...

    def _kill_supervisor(self, name: str, pid: int) -> None:
        _kill(pid)

    def _kill_agent(self, name: str, pid: int) -> None:
        for child in self._children(pid):
            _kill(child)

    def _kill_both(self, name: str, pid: int) -> None:
        """Power loss."""
        for each in (pid, *self._children(pid)):
            _kill(each)

    def _stop_for_a_moment(self, name: str, pid: int) -> None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.dice.uniform(0.1, 1.5))
            process.send_signal(signal.SIGCONT)

    def _pause(self, name: str, pid: int) -> None:
        with contextlib.suppress(LoopsupError, OSError):
            self.world.ask("pause", name)

    def _say(self, name: str, pid: int) -> None:
        with contextlib.suppress(LoopsupError, OSError):
            self.world.ask("say", name, text="a word in between")

    def _come(self, name: str, pid: int) -> None:
        self.clients.append(self._command(self.dice.choice(["attach", "wait"]), name))

    def _go(self, name: str, pid: int) -> None:
        """A client is killed."""
        if self.clients:
            client = self.clients.pop(self.dice.randrange(len(self.clients)))
            client.kill()
            client.wait()

    def _command(self, verb: str, name: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-P", "-m", "loopsup", verb, "--session", name]
        null = subprocess.DEVNULL
        cwd, env = self.world.project, self.world.env
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=null, stdout=null, stderr=null)

    # ---- looking ----------------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        return self.world.folder(name).resolve()

    def _supervisor(self, name: str) -> int | None:
        owner = probe(self.folder(name))
        return None if owner is None else owner.pid

    def _children(self, pid: int) -> list[int]:
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []

    def heard(self, name: str) -> list[int]:
        """The iterations whose prompt the agent got, in its own record."""
        found = []
        for line in (self.folder(name) / "demo.jsonl").read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                number = _ITERATION.search(entry.get("text", "")) if entry["kind"] == "user" else None
                if number is not None:
                    found.append(int(number[1]))
        return found

    def _state(self) -> str:
        return "\n".join(f"{name}: {self.world.recorded(name)}\n{self.world.log(name)}" for name in self.names)

    # ---- the end ----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        for client in self.clients:
            client.kill()
            client.wait()
        for name in self.names:
            self.world.ok("close", "--session", name)

    def ledger(self, name: str) -> Ledger:
        records = [record for record in read_all(self.folder(name)) if isinstance(record, Record)]
        return balance(records, self.heard(name))


def balance(records: list[Record], heard: list[int]) -> Ledger:
    """The ledger of one session, which has one loop with a fixed rhythm."""
    out = Ledger()
    twice = [number for number, count in Counter(heard).items() if count > 1]
    if twice:
        out.faults.append(f"iterations delivered more than once: {twice}")
    planned, handed, missed, pending = _wakes(records)
    for what in missed:
        out.coalesced += what.count - 1 if what.done is Done.WOKEN else 0
        out.skipped += what.count if what.done is Done.SKIPPED else 0
    for number in handed:
        if number in heard:
            out.delivered += 1
        elif _told(records, number):
            out.interrupted += 1
        else:
            out.faults.append(f"iteration {number} was handed over, never arrived, and nothing says so")
    out.pending = len(pending)
    if unknown := sorted(set(heard) - set(handed)):
        out.faults.append(f"delivered without a record: {unknown}")
    for due, count in Counter(handed.values()).items():
        if count > 1:
            out.faults.append(f"the wake due at {due} was handed over {count} times")
    skipped = {what.due_at for what in missed if what.done is Done.SKIPPED}
    if lost := planned - set(handed.values()) - skipped - pending:
        out.faults.append(f"wakes that were planned and of which nothing became: {sorted(lost)}")
    if both := skipped & set(handed.values()):
        out.faults.append(f"wakes that were skipped and handed over: {sorted(both)}")
    return out


def _wakes(records: list[Record]) -> tuple[set[int], dict[int, int], list[Missed], set[int]]:
    """What the journal says: planned dues, the due of each iteration handed over, missed wakes, what is pending."""
    planned: set[int] = set()
    handed: dict[int, int] = {}
    missed: list[Missed] = []
    pending: set[int] = set()
    for record in records:
        loop = record.loop
        assert loop is not None
        pending = _ahead(loop)
        planned |= pending
        flight = loop.flight
        if flight is not None:
            planned.add(flight.due_at)
            handed[flight.iteration] = flight.due_at
        elif handed and loop.iteration_count < max(handed):
            del handed[max(handed)]  # it provably started nothing: the wake is kept
        if loop.last_missed is not None and loop.last_missed not in missed[-1:]:
            missed.append(loop.last_missed)
    return planned, handed, missed, pending


def _ahead(loop: Loop) -> set[int]:
    match loop.phase:
        case Waiting(due):
            return {due.wall}
        case Queued(due_at):
            return {due_at}
        case Paused(next_due_at=int() as due_at):
            return {due_at}
        case _:
            return set()


def _told(records: list[Record], iteration: int) -> bool:
    """The iteration in flight ended in a pause that says why, without a decision."""
    for before, after in itertools.pairwise(records):
        flight = None if before.loop is None else before.loop.flight
        if flight is None or flight.iteration != iteration or after.loop is None:
            continue
        if isinstance(after.loop.phase, Paused) and after.loop.flight is None:
            return True
    return False


def _kill(pid: int) -> None:
    with contextlib.suppress(psutil.Error):
        psutil.Process(pid).kill()


def soak(world: World, seed: int, wakes: int, sessions: int) -> list[str]:
    """Run it; one line a session. AssertionError where the books do not balance."""
    it = Soak(world, seed, wakes, sessions)
    it.run()
    faults, lines = [], []
    for name in it.names:
        books = it.ledger(name)
        faults += [f"{name}: {fault}" for fault in books.faults]
        lines.append(
            f"{name}: due {books.due} = delivered {books.delivered} + coalesced {books.coalesced}"
            f" + skipped {books.skipped} + interrupted and told {books.interrupted}"
            f" + pending {books.pending}; duplicates 0"
        )
    lines.append("done: " + ", ".join(f"{what} {count}" for what, count in sorted(it.done.items())))
    assert not faults, f"seed {seed}: {faults}"
    world.wait_for(lambda: not world.processes(), f"the end of all processes (seed {seed})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--wakes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"soak: {given.wakes} wakes in {given.sessions} sessions, seed {seed}", flush=True)
    began = mono_ms()
    with a_world() as world:
        for line in soak(world, seed, given.wakes, given.sessions):
            print(line)
    print(f"the books balance ({(mono_ms() - began) / 1000:.0f} s)")


if __name__ == "__main__":
    main()
