"""The adapter for the Pi coding agent, driven headless (`pi --mode rpc`) with a bundled extension."""

from __future__ import annotations

from loopsup_pi.adapter import PiAdapter


def create() -> PiAdapter:
    """The entry point."""
    return PiAdapter()
