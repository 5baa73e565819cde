"""What loopsup costs: `make bench` prints it. Nothing here is a test; the numbers depend on the machine.

Each figure is the best of several runs, because the best is what the code costs and the rest is what else
the machine was doing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from loopsup.core.events import DecisionCalled, IterationSettled, Start, Ticked
from loopsup.core.limits import DAY, HOUR
from loopsup.core.model import Driver, Fixed, Loop, Moment, Policy
from loopsup.core.step import advance, next_deadline
from loopsup.store import ticks
from loopsup.store.home import Home
from loopsup.store.journal import JournalAppender, read_tail
from loopsup.wire.control import MAX_LINE
from loopsup.wire.jsonl import LineSplitter

RUNS = 7
HELLO = "import typer\napp = typer.Typer()\n@app.command()\ndef hello() -> None: pass\napp()"
T0 = 1_760_000_000_000


def best_ms(work: Callable[[], object], runs: int = RUNS) -> float:
    return min(timeit.repeat(work, number=1, repeat=runs)) * 1000


def show(what: str, ms: float) -> None:
    print(f"{what:<62} {ms:9.1f} ms")


def simulated_week() -> Loop:
    """168 hourly wakes through the core, every one decided and settled."""
    now = Moment(T0, 0)
    policy = Policy(Fixed(HOUR), for_ms=7 * DAY, max_iterations=1000)
    loop = advance(None, Start("bench", "objective", policy, None, idle=True), now)[-1].loop
    while now.wall < T0 + 7 * DAY:
        loop = advance(loop, Ticked(idle=True), now)[-1].loop
        stamp = None if loop is None else loop.stamp()
        if stamp is not None:
            arguments = {"decision": "continue", "summary": "s", "evidence": "e"}
            loop = advance(loop, DecisionCalled(stamp, arguments), now)[-1].loop
            loop = advance(loop, IterationSettled(stamp, idle=True, turns=1), now)[-1].loop
        due = next_deadline(loop).wall
        now = now.plus((T0 + 7 * DAY if due is None else due) - now.wall)
    assert loop is not None
    assert loop.iteration_count == 7 * 24
    return loop


def cpu_ms(argv: list[str], env: dict[str, str]) -> float:
    """User and system time of a child: what the other core does to the wall clock does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *argv], env=env, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def commands(env: dict[str, str]) -> None:
    for what, argv in (
        ("python -c pass", ["-c", "pass"]),
        ("an empty typer command", ["-c", HELLO]),
        ("loopsup status (no session)", ["-P", "-m", "loopsup", "status"]),
        ("loopsup ls (no session)", ["-P", "-m", "loopsup", "ls"]),
    ):
        show(f"{what} (CPU time)", min(cpu_ms(argv, env) for _ in range(RUNS)))


def journal(folder: Path) -> None:
    loop = simulated_week()
    for records in (100, 20_000):
        path = folder / str(records)
        path.mkdir()
        with JournalAppender.open(path) as appender:
            line = appender.append(Moment(T0, 0), Ticked(idle=True), loop)
        content = (path / "journal.jsonl").read_bytes()
        (path / "journal.jsonl").write_bytes(content * records)
        show(f"open a journal of {records} records (record {line.seq})", best_ms(lambda p=path: read_tail(p)))  # type: ignore[misc]
    with JournalAppender.open(folder) as appender:
        show("append and fsync one record", best_ms(lambda: appender.append(Moment(T0, 0), Ticked(idle=True), loop)))


def thousand_loops(env: dict[str, str]) -> None:
    """1,000 loops that ticks drive, none of them due: what `loopsup tick` costs, its start included."""
    home = Home(Path(env["LOOPSUP_HOME"]))
    home.ensure()
    now = time.time_ns() // 1_000_000
    start = Start("bench", "objective", Policy(Fixed(HOUR)), 12 * HOUR, idle=False, driver=Driver.TICK)
    loop = advance(None, start, Moment(now, 0))[-1].loop
    for number in range(1000):
        folder = home.sessions / f"s{number}"
        folder.mkdir(mode=0o700)
        with JournalAppender.open(folder) as appender:
            appender.append(Moment(now, 0), start, loop)
    tick = ["-P", "-m", "loopsup", "tick", "--json"]
    nothing = subprocess.run([sys.executable, *tick], env=env, check=True, capture_output=True).stdout
    assert json.loads(nothing) == {"version": 1, "sessions": []}
    show("loopsup tick, 1,000 loops wait and none is due (wall time)", best_ms(lambda: cpu_ms(tick, env)))
    show("the same (CPU time)", min(cpu_ms(tick, env) for _ in range(RUNS)))
    show("of that, reading the journals", best_ms(lambda: list(ticks.perhaps_due(home, now))))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands({**os.environ, "LOOPSUP_HOME": str(folder / "home")})
        thousand_loops({**os.environ, "LOOPSUP_HOME": str(folder / "thousand")})
        show("a simulated week of hourly wakes", best_ms(simulated_week))
        journal(folder)
    line = b'{"text":"' + b"x" * (32 * 1024 * 1024) + b'"}\n'
    chunks = [line[at : at + 65536] for at in range(0, len(line), 65536)]
    show("split a line of 32 MiB that comes in 64 KiB chunks", best_ms(lambda: feed(chunks)))


def feed(chunks: list[bytes]) -> None:
    splitter = LineSplitter(max(MAX_LINE, 64 * 1024 * 1024))
    assert sum(len(splitter.feed(chunk)) for chunk in chunks) == 1


if __name__ == "__main__":
    main()
