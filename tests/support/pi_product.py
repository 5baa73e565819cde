"""loopsup as its user runs it, on the real Pi: `with product([…replies…]) as pi:`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support.model_server import ModelServer, Reply
from tests.support.pi_env import PiWorld
from tests.support.product import Json, Product, served
from tests.support.world import roots


class PiProduct(Product):
    """See `Product`."""

    agent = "pi"

    def __init__(self, root: Path, server: ModelServer, settings: Json) -> None:
        super().__init__(root, server)
        (root / "pi").mkdir()
        self.pi_world = PiWorld(root / "pi", server.url, settings)
        path = os.pathsep.join((self.pi_world.env["PATH"].split(os.pathsep)[0], self.env["PATH"]))
        self.env |= self.pi_world.env | {"PATH": path}

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

    def entries(self, kind: str) -> list[Any]:
        """Data of the custom entries of a type in Pi's session file."""
        whole, _, _ = self.pi_file.read_bytes().rpartition(b"\n")
        lines = [json.loads(line) for line in whole.split(b"\n")]
        return [line["data"] for line in lines if line.get("customType") == kind]

    def pis(self) -> list[psutil.Process]:
        """Pi (it sets its own title); not what it has just forked and that is still to become a tool."""
        return roots(process for process in self.processes() if _named(process, "pi"))

    def the_pi(self) -> psutil.Process:
        (found,) = self.pis()
        return found


def _named(process: psutil.Process, name: str) -> bool:
    """False also where it has ended just now."""
    try:
        return bool(process.name() == name)
    except psutil.Error:
        return False


@contextlib.contextmanager
def product(script: Iterable[Reply] = (), **settings: Any) -> Iterator[PiProduct]:
    """Closed at the end, and nothing is left. `settings` are Pi's."""
    with ModelServer(script) as server, served(lambda root: PiProduct(root, server, settings), "lpi-") as pi:
        yield pi
