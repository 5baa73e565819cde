"""loopsup as its user runs it, on the real Pi: real processes, a scripted model on loopback, one closed world.

`with product([...replies...]) as pi:` gives a `PiProduct`; on the way out its sessions are closed, and whatever
process it left behind fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.model_server import Body, ModelServer, Reply
from tests.support.pi_env import PiWorld

LOOPSUP = (sys.executable, "-P", "-m", "loopsup")
DEADLINE_S = 40.0  # everything waited for here takes a second or two on a free machine
GONE_S = 10.0  # an agent whose supervisor is gone ends in milliseconds
MARK = "LOOPSUP_TEST_WORLD"  # in the environment of every process of one world: how they are found

Json = dict[str, Any]


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """The last JSON object it printed."""
        found: Json = json.loads(self.out.strip().splitlines()[-1])
        return found


class PiProduct:
    """One directory with one session of loopsup on Pi."""

    def __init__(self, root: Path, server: ModelServer, settings: Json) -> None:
        self.root = root
        self.server = server
        self.world = PiWorld(root, server.url, settings)
        self.home = root / "lh"
        self.config_file = root / "config.toml"
        self.env = {
            **self.world.env,
            "LOOPSUP_HOME": str(self.home),
            "LOOPSUP_CONFIG": str(self.config_file),
            MARK: str(root),
        }
        self.config("")

    # ---- acting -----------------------------------------------------------------------------------

    def config(self, text: str) -> None:
        self.config_file.write_text(text)

    def run(
        self, *args: str, expect: int | None = 0, cwd: Path | None = None, stdin: str = "", env: Json | None = None
    ) -> Done:
        """A `loopsup` command; its exit code must be `expect` (None: any)."""
        done = subprocess.run(
            [*LOOPSUP, *args],
            cwd=cwd or self.work,
            env=env or self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert expect is None or done.returncode == expect, (args, done.returncode, done.stdout, done.stderr)
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str, every: str = "auto", objective: str = "obj", expect: int | None = 0) -> Done:
        """`start --detach --json` with the shortest rhythm."""
        options = ["start", "--agent", "pi", "--every", every, "--min-delay", "1s", "--detach", "--json"]
        mine = args[: args.index("--")] if "--" in args else args
        return self.run(*options, *mine, objective, *args[len(mine) :], expect=expect)

    def wait(self, expect: int) -> Json:
        """`wait`, which must end with `expect`; the loop."""
        loop: Json = self.run("wait", "--timeout", "60s", "--json", expect=expect).json["loop"]
        return loop

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*LOOPSUP, *args],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    # ---- looking ----------------------------------------------------------------------------------

    @property
    def work(self) -> Path:
        return self.world.work

    @property
    def folder(self) -> Path:
        return Path(os.path.realpath(self.home / "sessions" / "work"))

    @property
    def pi_file(self) -> Path:
        """Pi's own session file."""
        return Path(self.status()["session"]["file"])

    def status(self) -> Json:
        return self.run("status", "--json").json

    def loop(self) -> Json:
        loop: Json = self.status()["loop"]
        return loop

    def records(self, name: str) -> list[Json]:
        """The lines of a JSONL file in the session's folder (the last one may still be in the making)."""
        whole, _, _ = (self.folder / name).read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.split(b"\n") if line]

    def events(self, kind: str | None = None) -> list[Json]:
        found = self.records("events.jsonl")
        return found if kind is None else [event["data"] for event in found if event["type"] == kind]

    def entries(self, kind: str) -> list[Any]:
        """Data of the custom entries of a type in Pi's session file."""
        lines = [json.loads(line) for line in self.pi_file.read_bytes().split(b"\n") if line]
        return [line["data"] for line in lines if line.get("customType") == kind]

    @property
    def requests(self) -> list[Body]:
        return self.server.requests

    def until(self, what: Callable[[], Any], name: str = "") -> Any:
        """Poll until `what()` is true; its value."""
        give_up = time.monotonic() + DEADLINE_S
        while not (found := what()):
            if time.monotonic() > give_up:
                raise TimeoutError(f"{name or 'it'} did not come true; {self.describe()}")
            time.sleep(0.05)
        return found

    def until_event(self, kind: str, count: int = 1, **data: Any) -> Json:
        """The `count`-th stored event of a type whose data has these values."""

        def found() -> Json | None:
            with contextlib.suppress(FileNotFoundError):
                fits = [event for event in self.events(kind) if data.items() <= event.items()]
                return fits[count - 1] if len(fits) >= count else None
            return None

        event: Json = self.until(found, f"event {kind} {data}")
        return event

    def describe(self) -> str:
        with contextlib.suppress(OSError):
            return f"events {self.events()[-8:]}, log {(self.folder / 'supervisor.log').read_text()[-1500:]}"
        return "there is no session"

    # ---- processes --------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Everything alive in this world."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.environ().get(MARK) == str(self.root)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def supervisor(self) -> psutil.Process:
        (found,) = [p for p in self.processes() if "supervise" in p.cmdline()]
        return found

    def pis(self) -> list[psutil.Process]:
        """Pi itself (it sets its own title)."""
        return [p for p in self.processes() if p.name() == "pi"]

    def pi(self) -> psutil.Process:
        (found,) = self.pis()
        return found

    def until_no_pi(self) -> None:
        self.until(lambda: not self.pis(), "the end of Pi")

    def close(self) -> None:
        """Close every session; nothing may be left."""
        sessions = self.home / "sessions"
        names = [p.name for p in sessions.iterdir() if not p.name.startswith(".")] if sessions.is_dir() else []
        for name in names:
            self.run("close", "--session", name, expect=None)
        _, left = psutil.wait_procs(self.processes(), timeout=GONE_S)
        shown = [(process.pid, process.name()) for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        assert shown == [], f"left behind: {shown}"


@contextlib.contextmanager
def product(script: Iterable[Reply] = (), **settings: Any) -> Iterator[PiProduct]:
    """Below a short path: control sockets have 100 bytes."""
    root = Path(tempfile.mkdtemp(prefix="lpi-"))
    with ModelServer(script) as server:
        pi = PiProduct(root, server, settings)
        try:
            yield pi
        finally:
            try:
                pi.close()
            finally:
                shutil.rmtree(root, ignore_errors=True)
