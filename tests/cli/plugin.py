"""An installed third-party adapter, as `importlib.metadata` sees one: a module and its entry points on a path."""

from __future__ import annotations

from pathlib import Path

MODULE = """
import os
from pathlib import Path
from loopsup.errors import NotFoundError, UsageError
from loopsup.ports import Capabilities, Conversation


class Adapter:
    def __init__(self, name, capabilities=Capabilities(permissions=True)):
        self.name, self.summary, self.capabilities = name, "an adapter for tests", capabilities

    def missing(self, command, env):
        if self.name in env.get("TEST_MISSING", "").split(","):
            return f"{command or self.name} is not on PATH; install it"

    def check_args(self, args, cwd):
        if "--bad" in args:
            raise UsageError("the argument --bad cannot be passed on")

    def locate(self, ref, cwd, env):
        file = Path(env["TEST_CONVERSATIONS"]) / f"{ref}.jsonl"
        if not file.exists():
            raise NotFoundError(f"there is no conversation {ref}")
        return Conversation(ref, file, Path(file.read_text().strip()))


def one():
    return Adapter("one")


def two():
    return Adapter("two")


def careless():
    return Adapter("careless", Capabilities())


def guarded():
    return Adapter("guarded", Capabilities(deny_tools=True))


def broken():
    raise RuntimeError("does not load")
"""
NAMES = ("one", "two", "careless", "guarded", "broken")


def install(folder: Path) -> Path:
    """Make the distribution below `folder`; returns the directory for sys.path."""
    place = folder / "plugins"
    meta = place / "loopsup_test_plugin-1.0.dist-info"
    meta.mkdir(parents=True)
    (place / "loopsup_test_plugin.py").write_text(MODULE)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: loopsup-test-plugin\nVersion: 1.0\n")
    entries = "".join(f"{name} = loopsup_test_plugin:{name}\n" for name in NAMES)
    (meta / "entry_points.txt").write_text(f"[loopsup.adapters]\n{entries}")
    return place
