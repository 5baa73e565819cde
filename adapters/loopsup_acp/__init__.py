"""The adapter for any agent that speaks the Agent Client Protocol (ACP), and short names for well-known ones.

Each factory is an entry point of its own; `profiles` is the table of start commands behind the short names.
"""

from __future__ import annotations

from loopsup.ports import Adapter
from loopsup_acp import profiles
from loopsup_acp.adapter import AcpAdapter


def create() -> Adapter:
    """`--agent acp -- COMMAND ARGS…`."""
    return AcpAdapter(profiles.ANY)


def claude() -> Adapter:
    return AcpAdapter(profiles.KNOWN["claude"])


def codex() -> Adapter:
    return AcpAdapter(profiles.KNOWN["codex"])


def gemini() -> Adapter:
    return AcpAdapter(profiles.KNOWN["gemini"])


def goose() -> Adapter:
    return AcpAdapter(profiles.KNOWN["goose"])


def kimi() -> Adapter:
    return AcpAdapter(profiles.KNOWN["kimi"])


def opencode() -> Adapter:
    return AcpAdapter(profiles.KNOWN["opencode"])


def qwen() -> Adapter:
    return AcpAdapter(profiles.KNOWN["qwen"])
