"""The adapter for any program with a terminal user interface, and profiles for well-known ones.

Each factory is an entry point of its own; `profiles` is the table behind the names.
"""

from __future__ import annotations

from loopsup.ports import Adapter
from loopsup_pty import profiles
from loopsup_pty.adapter import PtyAdapter


def create() -> Adapter:
    """`--agent pty -- [OPTIONS] COMMAND ARGS…`."""
    return PtyAdapter(profiles.ANY)


def claude() -> Adapter:
    return PtyAdapter(profiles.KNOWN["claude-tui"])


def codex() -> Adapter:
    return PtyAdapter(profiles.KNOWN["codex-tui"])


def copilot() -> Adapter:
    return PtyAdapter(profiles.KNOWN["copilot-tui"])


def opencode() -> Adapter:
    return PtyAdapter(profiles.KNOWN["opencode-tui"])
