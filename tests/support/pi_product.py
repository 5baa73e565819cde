"""loopsup as its user runs it, on the real Pi: a `World` with Pi on its PATH and a scripted model on loopback.

`with product([…replies…]) as pi:`. On the way out every session is closed; whatever is left then fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support.model_server import Body, ModelServer, Reply
from tests.support.pi_env import PiWorld
from tests.support.world import Ran, World, roots

GONE_S = 60.0  # an agent whose supervisor is gone ends in milliseconds, where the machine has any to spare

Json = dict[str, Any]


class PiProduct(World):
    """One directory with one session of loopsup on Pi, called `project`."""

    def __init__(self, root: Path, server: ModelServer, settings: Json) -> None:
        super().__init__(root)
        self.server = server
        (root / "pi").mkdir()
        self.pi_world = PiWorld(root / "pi", server.url, settings)
        path = os.pathsep.join((self.pi_world.env["PATH"].split(os.pathsep)[0], self.env["PATH"]))
        self.env |= self.pi_world.env | {"PATH": path}

    # ---- acting -----------------------------------------------------------------------------------

    def act(self, *argv: str, expect: int = 0, **how: Any) -> Ran:
        """A command that must end with the exit code `expect`."""
        ran = self.run(*argv, **how)
        assert ran.code == expect, f"loopsup {' '.join(argv)}: {ran}\n{self.log()}"
        return ran

    def begin(
        self, *options: str, every: str = "auto", objective: str = "obj", after: tuple[str, ...] = (), expect: int = 0
    ) -> Json:
        """`start --detach --json` with the shortest range; its object. `after`: what stands after `--`."""
        argv = ["start", "--agent", "pi", "--every", every, "--min-delay", "1s", "--detach", "--json", *options]
        tail = ("--", *after) if after else ()
        found: Json = self.act(*argv, objective, *tail, expect=expect).obj
        return found

    def wait(self, expect: int) -> Json:
        """`wait`, which must end with `expect`; the loop."""
        loop: Json = self.json("wait", "--timeout", "100s", code=expect)["loop"]
        return loop

    # ---- looking ----------------------------------------------------------------------------------

    @property
    def requests(self) -> list[Body]:
        return self.server.requests

    @property
    def agent_dir(self) -> Path:
        return self.pi_world.root / "agent"

    @property
    def real_folder(self) -> Path:
        return Path(os.path.realpath(self.folder()))

    @property
    def pi_file(self) -> Path:
        """Pi's own session file."""
        return Path(self.status()["session"]["file"])

    def data(self, kind: str) -> list[Json]:
        return [event["data"] for event in self.events(kind)]

    def entries(self, kind: str) -> list[Any]:
        """Data of the custom entries of a type in Pi's session file."""
        whole, _, _ = self.pi_file.read_bytes().rpartition(b"\n")
        lines = [json.loads(line) for line in whole.split(b"\n")]
        return [line["data"] for line in lines if line.get("customType") == kind]

    def balanced(self) -> bool:
        """A-08, as a person would count it: `grep -c '"assistant.turn_start"' events.jsonl`."""
        lines = (self.folder() / "events.jsonl").read_text().splitlines()
        found = [sum(f'"assistant.turn_{end}"' in line for line in lines) for end in ("start", "end")]
        return found == [len(self.requests)] * 2

    def file_text(self, name: str) -> str:
        """Wait for a file of the project with something in it."""
        path = self.project / name
        found: str = self.wait_for(lambda: path.exists() and path.read_text().strip(), name)
        return found

    # ---- processes --------------------------------------------------------------------------------

    def pis(self) -> list[psutil.Process]:
        """Pi (it sets its own title); not what it has just forked and that is still to become a tool."""
        return roots(process for process in self.processes() if process.name() == "pi")

    def the_pi(self) -> psutil.Process:
        (found,) = self.pis()
        return found

    def close(self) -> None:
        """Close every session; nothing may be left."""
        sessions = self.home / "sessions"
        names = [path.name for path in sessions.iterdir() if path.name[0] != "."] if sessions.is_dir() else []
        for name in names:
            self.run("close", "--session", name)
        left = psutil.wait_procs(self.processes(), timeout=GONE_S)[1]
        shown = [(process.pid, process.cmdline()) for process in left if process.status() != psutil.STATUS_ZOMBIE]
        assert shown == [], f"left behind: {shown}"


@contextlib.contextmanager
def product(script: Iterable[Reply] = (), **settings: Any) -> Iterator[PiProduct]:
    """The root is short: control sockets have 100 bytes. `settings` are Pi's."""
    with ModelServer(script) as server:
        pi = PiProduct(Path(tempfile.mkdtemp(prefix="lpi-", dir="/tmp")), server, settings)
        try:
            yield pi
            pi.close()
        finally:
            pi.end()
