"""loopsup as its user runs it, on the real Copilot: `with product([…replies…]) as it:`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from tests.support import toolchain
from tests.support.copilot_env import copilot_env, heard, tool_texts
from tests.support.model_server import Body, ModelServer, Reply
from tests.support.product import Product, served
from tests.support.world import roots, words


class CopilotProduct(Product):
    """See `Product`."""

    agent = "copilot"

    def __init__(self, root: Path, server: ModelServer) -> None:
        super().__init__(root, server)
        path = os.pathsep.join((str(toolchain.ensure_copilot()), self.env["PATH"]))
        kept = {key: value for key, value in self.env.items() if not key.startswith(("COPILOT_", "GH_", "GITHUB_"))}
        self.env = {**kept, **copilot_env(root, server.url), "PATH": path}

    def heard(self, number: int = -1) -> list[str]:
        """The user messages of a request, as they were sent."""
        return heard(self.requests[number])

    def tool_texts(self, number: int = -1) -> list[str]:
        return tool_texts(self.requests[number])

    def the_copilot(self) -> psutil.Process:
        (found,) = roots(one for one in self.processes() if "--headless" in words(one))
        return found


@contextlib.contextmanager
def product(
    script: Iterable[Reply] = (), rule: Callable[[Body], Reply | None] | None = None
) -> Iterator[CopilotProduct]:
    """Closed at the end, and nothing is left."""
    with ModelServer(script, rule) as server, served(lambda root: CopilotProduct(root, server), "lcp-") as it:
        yield it
