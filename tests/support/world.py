"""A world of its own for an end-to-end test: state home, configuration, project directory, real processes.

Rules. Nothing of the machine's own loopsup is seen. Whatever a test started is found again by the state home
in its environment and ended by pid, also when the test failed. Nothing sleeps for its own sake: tests wait for
a status, an event or a record, with a deadline that only a broken product reaches.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from loopsup import client
from loopsup.errors import LoopsupError
from loopsup.store.identity import load_identity
from loopsup.wire.control import Request

PATIENCE_S = 60.0  # nothing here takes longer on a loaded machine
COMMAND_S = 120.0  # nor a command, those that wait for an iteration included
POLL_S = 0.05
LOOPSUP = (sys.executable, "-P", "-m", "loopsup")
QUICK = ("--every", "1s", "--min-delay", "1s")
SLOW = ("--every", "1h")
_OURS = ("LOOPSUP_", "PI_", "XDG_")


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def obj(self) -> Any:
        """Its standard output as one JSON object."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Like:
    """Equals whatever the test accepts: for the parts of an object that differ from run to run."""

    def __init__(self, accepts: Callable[[Any], object], name: str) -> None:
        self._accepts, self._name = accepts, name

    def __eq__(self, other: object) -> bool:
        return bool(self._accepts(other))

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"<{self._name}>"


INSTANT = Like(lambda it: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(it)), "instant")
UUID = Like(lambda it: isinstance(it, str) and str(uuid.UUID(it)) == it, "uuid")
COUNT = Like(lambda it: type(it) is int and it >= 0, "count")


class World:
    """One test's machine. The session in `project` is called `project`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.project = root / "project"
        self.config = root / "config" / "loopsup" / "config.toml"
        self.project.mkdir()
        self.config.parent.mkdir(parents=True)
        (root / "user").mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
        self.env = kept | {
            "LOOPSUP_HOME": str(self.home),
            "LOOPSUP_ORPHAN_REAP_GRACE_S": "600",  # a slow machine is no reason to close; tests of it say less
            "XDG_CONFIG_HOME": str(root / "config"),
            "HOME": str(root / "user"),
            "NO_COLOR": "1",
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        }

    # ---- commands ---------------------------------------------------------------------------------

    def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        text: str | None = None,
        timeout: float = COMMAND_S,
        preexec: Callable[[], None] | None = None,
    ) -> Ran:
        """`loopsup argv…` to its end; `text` is its standard input."""
        done = subprocess.run(
            [*LOOPSUP, *argv],
            cwd=cwd or self.project,
            env={**self.env, **(env or {})},
            input=(text or "").encode(),
            capture_output=True,
            timeout=timeout,
            preexec_fn=preexec,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *argv: str, **how: Any) -> Ran:
        """The same, and it must have gone well."""
        ran = self.run(*argv, **how)
        assert ran.code == 0, f"loopsup {' '.join(argv)}: {ran}\n{self.log()}"
        return ran

    def json(self, verb: str, *argv: str, code: int = 0, **how: Any) -> Any:
        """The one JSON object `loopsup VERB --json …` prints; its exit code must be `code`."""
        ran = self.run(verb, "--json", *argv, **how)
        assert ran.code == code, f"loopsup {verb} --json {' '.join(argv)}: {ran}\n{self.log()}"
        return ran.obj

    def spawn(self, *argv: str, cwd: Path | None = None, **how: Any) -> subprocess.Popen[str]:
        """`loopsup argv…` in the background, its output in pipes."""
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
        return subprocess.Popen([*LOOPSUP, *argv], cwd=cwd or self.project, env=self.env, text=True, **how)

    def finish(self, process: subprocess.Popen[str], timeout: float = PATIENCE_S) -> Ran:
        """The end of a `spawn`ed command."""
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out or "", err or "")

    # ---- the demo agent ---------------------------------------------------------------------------

    def script(self, behaviours: object, name: str = "script.json") -> Path:
        """A script of the demo agent (`loopsup_demo.script`); may be replaced at any time."""
        path = self.root / name
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(behaviours))
        fresh.replace(path)
        return path

    def start(self, behaviours: object, *options: str, objective: str = "obj", **how: Any) -> Any:
        """A detached loop of the demo agent, hourly unless the options say otherwise; its status."""
        rhythm = () if "--every" in options else SLOW
        agent = ("--agent", "demo", "--detach", *rhythm, *options)
        return self.json("start", *agent, objective, "--", "--script", str(self.script(behaviours)), **how)

    def gate(self, name: str) -> str:
        """A path a script can wait for; `open(name)` lets it go on."""
        return str(self.root / f"gate-{name}")

    def open(self, name: str) -> None:
        Path(self.gate(name)).touch()

    def configure(self, text: str) -> None:
        self.config.write_text(text)

    def hook(self, body: str) -> Path:
        """An attention hook written in Python; `received` reads what it was given, call by call."""
        path = self.root / "hook"
        head = f"#!{sys.executable}\nimport os, sys, time, uuid\nevent = sys.stdin.buffer.read()\n"
        keep = (
            f"at = f'{self.root}/hook-{{time.monotonic_ns():020}}-{{os.getpid()}}'\n"
            "open(at, 'wb').write(event)\nos.rename(at, at + '.json')\n"
        )
        path.write_text(head + keep + body)
        path.chmod(0o700)
        return path

    def received(self) -> list[Any]:
        return [json.loads(path.read_bytes()) for path in sorted(self.root.glob("hook-*.json"))]

    # ---- what there is to see ---------------------------------------------------------------------

    def status(self, session: str = "project") -> Any:
        ran = self.run("status", "--json", "--session", session)
        assert ran.code in (0, 5), f"{ran}\n{self.log(session)}"
        return ran.obj

    def loop(self, session: str = "project") -> Any:
        return self.status(session)["loop"]

    def folder(self, session: str = "project") -> Path:
        return self.home / "sessions" / session

    def events(self, *types: str, session: str = "project") -> list[Any]:
        """Stored events, of these types only (none named: all)."""
        found = _complete_lines(self.folder(session) / "events.jsonl")
        return [event for event in found if not types or event["type"] in types]

    def journal(self, session: str = "project") -> list[Any]:
        return _complete_lines(self.folder(session) / "journal.jsonl")

    def recorded(self, session: str = "project") -> Any:
        """The loop of the newest journal record (its own form, not that of status)."""
        records = self.journal(session)
        return records[-1]["loop"] if records else None

    def log(self, session: str = "project") -> str:
        try:
            return (self.folder(session) / "supervisor.log").read_text(errors="replace")[-4000:]
        except OSError:
            return "(no supervisor.log)"

    # ---- waiting ----------------------------------------------------------------------------------

    def wait_for(self, look: Callable[[], Any], what: str = "", timeout: float = PATIENCE_S) -> Any:
        """Poll until `look` gives something true; that is returned."""
        give_up = time.monotonic() + timeout
        while not (found := look()):
            if time.monotonic() > give_up:
                with contextlib.suppress(Exception):
                    what += f"\nstatus: {self.run('status').out}"
                tail = "\n".join(map(json.dumps, self.events()[-12:]))
                raise AssertionError(f"waited {timeout:g} s for {what}\nevents: {tail}\nlog: {self.log()}")
            time.sleep(POLL_S)
        return found

    def steps(self, session: str = "project") -> list[tuple[str, str | None]]:
        """Where the transitions of the log went: (state, pause reason)."""
        found = self.events("loop.transition", session=session)
        return [(event["data"]["to"], event["data"].get("pauseReason")) for event in found]

    def said(self, *origins: str, session: str = "project") -> list[str]:
        """The texts of the messages the agent took, of these origins only (none named: all)."""
        found = [event["data"] for event in self.events("user.message", session=session)]
        return [data["text"] for data in found if not origins or data["origin"] in origins]

    def pairs(self, session: str = "project") -> tuple[int, int]:
        """How many turns began, and how many ended."""
        begun, ended = (self.events(f"assistant.turn_{which}", session=session) for which in ("start", "end"))
        return len(begun), len(ended)

    def peek(self, session: str = "project") -> Any:
        """The status without the cost of a process, where a supervisor answers."""
        with contextlib.suppress(LoopsupError):
            answer = client.request(self.socket(session), Request("status")).status
            if answer is not None:
                return dict(answer)
        return self.status(session)

    def ask(self, verb: str, session: str = "project", /, **args: Any) -> Any:
        """What a command asks over the socket, without the cost of a process; the status. LoopsupError."""
        return client.request(self.socket(session), Request(verb, args)).status

    def socket(self, session: str = "project") -> Path:
        return Path(load_identity(self.folder(session).resolve()).socket)

    def until(self, session: str = "project", timeout: float = PATIENCE_S, **fields: Any) -> Any:
        """Wait for these values in the loop's status; the whole status."""

        def look() -> Any:
            status = self.peek(session)
            loop = status["loop"] or {}
            return status if all(loop.get(key) == value for key, value in fields.items()) else None

        return self.wait_for(look, str(fields), timeout)

    def until_event(self, type_: str, count: int = 1, /, *, session: str = "project", **data: Any) -> Any:
        """Wait for the `count`th stored event of this type with these data; the event."""

        def look() -> Any:
            found = [
                event
                for event in self.events(type_, session=session)
                if all(event["data"].get(key) == value for key, value in data.items())
            ]
            return found[count - 1] if len(found) >= count else None

        return self.wait_for(look, f"{type_} {data} ×{count}")

    def until_over(self, pid: int, timeout: float = PATIENCE_S) -> None:
        """Wait for the end of a process."""
        self.wait_for(lambda: not _runs(pid), f"the end of process {pid}", timeout)

    # ---- processes --------------------------------------------------------------------------------

    def supervisor(self, session: str = "project") -> int:
        return int(self.status(session)["session"]["supervisor"]["pid"])

    def agents(self, supervisor: int) -> list[int]:
        """The agent processes of a supervisor."""
        found = []
        for child in psutil.Process(supervisor).children():
            with contextlib.suppress(psutil.Error):  # it ended just now
                if any("loopsup_demo" in word for word in child.cmdline()):
                    found.append(child.pid)
        return found

    def agent_pid(self, session: str = "project") -> int:
        """The one child of the supervisor."""
        (child,) = psutil.Process(self.supervisor(session)).children()
        return int(child.pid)

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a process of this world; KILL waits for its end."""
        assert pid in {process.pid for process in self.processes()}
        os.kill(pid, number)
        if number == signal.SIGKILL:
            self.until_over(pid)

    def halt(self, pid: int) -> None:
        """Stop a process of this world; it does nothing any more when this returns."""
        self.kill(pid, signal.SIGSTOP)
        self.wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the stop")

    def processes(self) -> list[psutil.Process]:
        """Everything alive with this world's state home in its environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("LOOPSUP_HOME") == str(self.home) and _runs(process.pid):
                    found.append(process)
        return found

    def until_deserted(self) -> None:
        """Wait until nothing of this world runs any more; where a command promises that, assert `processes`."""
        self.wait_for(lambda: not self.processes(), "the end of everything")

    def end(self) -> None:
        """Nothing of it is left: TERM first, so that supervisors end their agents, then KILL."""
        left = self.processes()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(left, timeout=5)
            left = self.processes()
        shutil.rmtree(self.root, ignore_errors=True)


def roots(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those whose parent is not among them: a fork looks like its parent until it has become something else."""
    found = {process.pid: process for process in processes}
    out = []
    for process in found.values():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
            if process.ppid() not in found:
                out.append(process)
    return out


def words(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has ended just now."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _complete_lines(path: Path) -> list[Any]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


def _runs(pid: int) -> bool:
    """Also a process that was killed, as long as one of its threads still is: until then its locks are held."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def a_world() -> Iterator[World]:
    """The root is short: socket paths have a limit."""
    found = World(Path(tempfile.mkdtemp(prefix="lu-", dir="/tmp")))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as found:
        yield found
