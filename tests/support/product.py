"""loopsup as its user runs it, on a real agent: a `World` with that agent on its PATH and a scripted model.

On the way out of `served` every session is closed; whatever is left then fails the test.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil

from tests.support.model_server import Body, ModelServer
from tests.support.world import Ran, World, words

# An agent whose supervisor is gone ends in milliseconds, where the machine has any to spare; the end of an
# interpreter with Copilot's SDK in it takes ten seconds under load.
GONE_S = 60.0

Json = dict[str, Any]


class Product(World):
    """One directory with one session of loopsup on `agent`, called `project`."""

    agent: ClassVar[str]

    def __init__(self, root: Path, server: ModelServer) -> None:
        super().__init__(root)
        self.server = server

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
        argv = ["start", "--agent", self.agent, "--every", every, "--min-delay", "1s", "--detach", "--json", *options]
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

    def data(self, kind: str) -> list[Json]:
        """Of the main agent's events of a type."""
        return [event["data"] for event in self.events(kind) if "agentId" not in event]

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

    def close(self) -> None:
        """Close every session; nothing may be left."""
        sessions = self.home / "sessions"
        names = [path.name for path in sessions.iterdir() if path.name[0] != "."] if sessions.is_dir() else []
        for name in names:
            self.run("close", "--session", name)
        left = psutil.wait_procs(self.processes(), timeout=GONE_S)[1]
        shown = [(process.pid, line) for process in left if (line := words(process))]  # what has ended has none
        assert shown == [], f"left behind: {shown}"


P = TypeVar("P", bound=Product)


@contextlib.contextmanager
def served(make: Callable[[Path], P], prefix: str) -> Iterator[P]:
    """What `make` makes of a fresh root. That one is short: control sockets have 100 bytes."""
    it = make(Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp")))
    try:
        yield it
        it.close()
    finally:
        it.end()
