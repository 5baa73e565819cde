"""loopsup as its user runs it, on the real Copilot: a `World` with Copilot on its PATH and a scripted model.

`with product([…replies…]) as it:`. On the way out every session is closed; whatever is left then fails the test.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support import toolchain
from tests.support.copilot_env import copilot_env, heard, tool_texts
from tests.support.model_server import Body, ModelServer, Reply
from tests.support.world import Ran, World, roots, words

GONE_S = 60.0  # under load the end of an interpreter with the SDK in it alone takes ten seconds

Json = dict[str, Any]


class CopilotProduct(World):
    """One directory with one session of loopsup on Copilot, called `project`."""

    def __init__(self, root: Path, server: ModelServer) -> None:
        super().__init__(root)
        self.server = server
        path = os.pathsep.join((str(toolchain.ensure_copilot()), self.env["PATH"]))
        kept = {key: value for key, value in self.env.items() if not key.startswith(("COPILOT_", "GH_", "GITHUB_"))}
        self.env = {**kept, **copilot_env(root, server.url), "PATH": path}

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
        argv = ["start", "--agent", "copilot", "--every", every, "--min-delay", "1s", "--detach", "--json", *options]
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

    def heard(self, number: int = -1) -> list[str]:
        """The user messages of a request, as they were sent."""
        return heard(self.requests[number])

    def tool_texts(self, number: int = -1) -> list[str]:
        return tool_texts(self.requests[number])

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

    # ---- processes --------------------------------------------------------------------------------

    def the_copilot(self) -> psutil.Process:
        (found,) = roots(one for one in self.processes() if "--headless" in words(one))
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
def product(
    script: Iterable[Reply] = (), rule: Callable[[Body], Reply | None] | None = None
) -> Iterator[CopilotProduct]:
    """The root is short: control sockets have 100 bytes."""
    with ModelServer(script, rule) as server:
        it = CopilotProduct(Path(tempfile.mkdtemp(prefix="lcp-", dir="/tmp")), server)
        try:
            yield it
            it.close()
        finally:
            it.end()
