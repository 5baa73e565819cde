"""The adapter for the Pi coding agent, driven headless (`pi --mode rpc`) with a bundled extension."""

from __future__ import annotations

from loopsup.ports import Adapter
from loopsup_pi.adapter import PiAdapter


def create() -> Adapter:
    """The entry point."""
    return PiAdapter()
