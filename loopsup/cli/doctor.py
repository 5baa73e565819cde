"""`loopsup doctor`: what is wrong or missing on this machine, each with the way on.

Rules: it changes nothing. Everything is looked at, whatever is wrong with the rest; of the sessions all lines are
read, not only the last ones. A `problem` keeps something from working, a `warning` is what somebody may not expect.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loopsup.cli.common import JsonOption, here, out_json
from loopsup.errors import EXIT_DONE, LoopsupError

if TYPE_CHECKING:
    from loopsup.cli.ls import Status
    from loopsup.store.sessions import Entry

VERSION = 1
FULL_BYTES = 1024 * 1024  # below this a disk is full: one message of an agent may be larger
LOW_BYTES = 100 * 1024 * 1024  # free space below which a night's events and an agent's own files may not fit
TICK_LATE_MS = 10 * 60_000  # the slowest timer anybody sets for ticks is told of after two of its rounds

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of `about`; `level` ok, warning or problem. `text` says the way on, where there is one."""

    level: str
    about: str
    text: str


def doctor(as_json: JsonOption = False) -> int:
    """Look for what is wrong or missing on this machine."""
    found = list(_each_once(each for check in CHECKS for each in _guarded(check, check.__name__.strip("_"))))
    wrong = any(finding.level == PROBLEM for finding in found)
    if as_json:
        out_json({"version": VERSION, "ok": not wrong, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    return LoopsupError.exit if wrong else EXIT_DONE


def _guarded(check: Callable[[], Iterator[Finding]], about: str) -> Iterator[Finding]:
    """What a check finds; an error of ours that stops it is a finding itself, of `about`."""
    try:
        yield from check()
    except LoopsupError as error:
        yield Finding(PROBLEM, about, error.message)


def _each_once(found: Iterable[Finding]) -> Iterator[Finding]:
    """What keeps several checks from looking (a wrong configuration) is told once."""
    told = set()
    for finding in found:
        if finding.level == OK or finding.text not in told:
            yield finding
        told.add(finding.text)


def _print(found: Sequence[Finding]) -> None:
    from loopsup.cli import render

    marks = {OK: "ok", WARNING: "!", PROBLEM: "!!"}
    width = max(len(finding.about) for finding in found)
    for finding in found:
        render.write(render.safe(f"{marks[finding.level]:<2}  {finding.about:<{width}}  {finding.text}"))
    count = {level: sum(finding.level == level for finding in found) for level in marks}
    render.write(f"{_count(count[PROBLEM], 'problem')}, {_count(count[WARNING], 'warning')}")


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


# ---- this machine -----------------------------------------------------------------------------------


def _installation() -> Iterator[Finding]:
    import platform

    from loopsup import __version__

    yield Finding(
        OK, "installation", f"loopsup {__version__}, Python {platform.python_version()}, {platform.system()}"
    )
    if shutil.which("loopsup") is None:
        text = "no `loopsup` on PATH; a person or an agent that types it does not find it (see the README, Install)"
        yield Finding(WARNING, "installation", text)


def _configuration() -> Iterator[Finding]:
    from loopsup.store.config import config_path, load_config

    path, config = config_path(), load_config()
    shown = os.fsdecode(path)
    if config.continuity.problem is not None:
        yield Finding(PROBLEM, "configuration", f"{shown}: {config.continuity.problem}")
    else:
        yield Finding(OK, "configuration", shown if path.exists() else "none, so the defaults hold")


def _hook() -> Iterator[Finding]:
    from loopsup.store.hooks import find_hook

    hook = find_hook()
    if hook.problem is not None:
        yield Finding(PROBLEM, "hook", hook.problem)
    elif hook.path is None:
        yield Finding(WARNING, "hook", "none, so nobody is told when a person is needed; see: loopsup hooks list")
    else:
        yield Finding(OK, "hook", f"{hook.path}; try it with: loopsup hooks test")


def _agents() -> Iterator[Finding]:
    from loopsup import registry
    from loopsup.cli.agents import row
    from loopsup.store.config import load_config

    config = load_config()
    commands = {name: agent.command for name, agent in config.agents.items()}
    rows = [row(found, commands, os.environ) for found in registry.load_all()]
    for each in rows:
        if each["error"] is not None:
            yield Finding(PROBLEM, "agents", f"{each['name']}: {each['error']}")
    ready = [each["name"] for each in rows if each["error"] is None and each["missing"] is None]
    yield Finding(OK, "agents", f"ready: {', '.join(ready) or 'none'}; see: loopsup agents")
    wanted = {name for name in (config.default_agent, *config.agents) if name is not None}
    for name in sorted(wanted):
        why = next((each["missing"] for each in rows if each["name"] == name), "there is no such agent")
        if why is not None:
            yield Finding(PROBLEM, "agents", f"{name}, which the configuration names: {why}")


def _rules() -> Iterator[Finding]:
    from loopsup.in_force import rules_in_force

    found = rules_in_force(here())
    yield from (Finding(WARNING, "rules", notice) for notice in found.notices)
    if not found.notices:
        count = "no rule" if not found.rules else _count(len(found.rules), "rule")
        yield Finding(OK, "rules", f"{count} in force in this directory")


# ---- the state --------------------------------------------------------------------------------------


def _state() -> Iterator[Finding]:
    from loopsup.store.home import find_home

    home = find_home()
    if not home.check():
        yield _not_made(home.root)
        return
    free = shutil.disk_usage(home.root).free
    if free < FULL_BYTES:
        yield Finding(
            PROBLEM, "state", f"the disk of {home.root} is full, so nothing is handed over; free some space"
        )
    elif free < LOW_BYTES:
        yield Finding(
            WARNING, "state", f"{home.root} has {free // 1024**2} MB left; nothing is handed over on a full disk"
        )
    else:
        yield Finding(OK, "state", os.fsdecode(home.root))


def _not_made(root: Path) -> Finding:
    """Whether the first session could make it."""
    from loopsup.store.home import check_private

    if root.exists():
        check_private(root)
    above = next(each for each in (root, *root.parents) if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        return Finding(PROBLEM, "state", f"{root} cannot be made in {above}; set LOOPSUP_HOME to another place")
    return Finding(OK, "state", f"{root} will be made with the first session")


def _sessions() -> Iterator[Finding]:
    from loopsup.cli import ls
    from loopsup.store.home import find_home
    from loopsup.store.sessions import list_sessions

    entries = list_sessions(find_home())
    said = ls.answers(entries, ls.ask)  # all at once: several that hang cost no more than one
    found = [
        each
        for entry in entries
        for each in _guarded(partial(_session, entry, said.get(entry.name)), f"session {entry.name}")
    ]
    yield from found
    if not found:
        count = "no session" if not entries else _count(len(entries), "session")
        yield Finding(OK, "sessions", f"{count}, nothing wrong; see: loopsup ls")
    yield from _ticks(entries)


def _session(entry: Entry, status: Status | None) -> Iterator[Finding]:
    """`status`: what its supervisor says, None where there is none or it does not answer."""
    about = f"session {entry.name}"
    if entry.identity is None:
        yield Finding(PROBLEM, about, f"{entry.unreadable}; it can be removed: loopsup forget --session {entry.name}")
        return
    if entry.tail.last is None and entry.tail.damaged:
        path = entry.folder / "journal.jsonl"
        text = f"nothing in {path} can be read, so what its loop was is lost; see: loopsup logs"
        yield Finding(PROBLEM, about, text)
    for name, damaged in _damage(entry):
        lines = "a damaged line" if damaged == 1 else f"{damaged} damaged lines"
        yield Finding(WARNING, about, f"{lines} in {entry.folder / name}, skipped; all the others are read")
    if entry.owner is None:
        yield from _unowned(entry, about)
    else:
        yield from _owned(entry, status, about)


def _damage(entry: Entry) -> Iterator[tuple[str, int]]:
    """The files of the session that have lines nobody can read, and how many."""
    from loopsup.cli.logs import Reader
    from loopsup.store import journal

    damaged = sum(isinstance(line, journal.DamagedLine) for line in journal.read_all(entry.folder))
    if damaged:
        yield journal.NAME, damaged
    events = Reader(entry.folder)
    for _ in events.after(0):
        pass
    if events.damaged:
        yield "events.jsonl", events.damaged


def _owned(entry: Entry, status: Status | None, about: str) -> Iterator[Finding]:
    """What its supervisor says. Where it does not: one that has closed meanwhile is no problem."""
    from loopsup.store.lock import probe

    if status is not None:
        if status["session"]["problem"]:
            yield Finding(PROBLEM, about, status["session"]["problem"])
    elif (owner := probe(entry.folder)) is not None:
        log, pid = entry.folder / "supervisor.log", owner.pid or "unknown"
        text = f"its supervisor (process {pid}) does not answer; see {log}, then end it"
        yield Finding(PROBLEM, about, text)


def _unowned(entry: Entry, about: str) -> Iterator[Finding]:
    from loopsup.clock import supervisors_clock
    from loopsup.core.model import Paused, PauseReason
    from loopsup.wire.status import lost_of, without_owner

    loop = without_owner(entry.loop, supervisors_clock(os.environ).now())
    if loop is None or not isinstance(loop.phase, Paused):
        return
    if loop.phase.reason is PauseReason.SUPERVISOR_LOST:
        text = f"its supervisor died, and the loop is paused; it goes on with: loopsup resume --session {entry.name}"
        yield Finding(WARNING, about, text)
    elif loop.phase.reason is PauseReason.DURATION_LIMIT and lost_of(entry.loop, 0) is not None:
        text = f"its supervisor died, and the loop's time is used up; see: loopsup status --session {entry.name}"
        yield Finding(WARNING, about, text)


def _ticks(entries: Sequence[Entry]) -> Iterator[Finding]:
    """Loops that wait for a tick, where none comes."""
    from loopsup.clock import wall_ms
    from loopsup.core.durations import show
    from loopsup.core.model import Driver, Waiting
    from loopsup.store import ticks
    from loopsup.store.home import find_home

    loops = [entry.loop for entry in entries if entry.loop is not None and entry.loop.driver is Driver.TICK]
    waiting = [loop for loop in loops if isinstance(loop.phase, Waiting)]
    if not waiting:
        return
    last, count = ticks.last(find_home()), _count(len(waiting), "loop")
    if last is None or wall_ms() - last > TICK_LATE_MS:
        ago = "never came" if last is None else f"came {show(wall_ms() - last)} ago"
        text = f"{count} waiting for `loopsup tick`, which {ago}; set up a timer: loopsup install-timer --help"
        yield Finding(WARNING, "ticks", text)
    else:
        yield Finding(OK, "ticks", f"{count} waiting for `loopsup tick`, which came {show(wall_ms() - last)} ago")


CHECKS = (_installation, _configuration, _hook, _agents, _rules, _state, _sessions)
