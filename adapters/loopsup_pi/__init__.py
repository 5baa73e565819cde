"""The adapters for the Pi coding agent with a bundled extension: headless (`pi --mode rpc`), and in its terminal."""

from __future__ import annotations

from loopsup.ports import Adapter
from loopsup_pi.adapter import PiAdapter, PiTuiAdapter


def create() -> Adapter:
    """The entry point."""
    return PiAdapter()


def terminal() -> Adapter:
    """`--agent pi-tui`."""
    return PiTuiAdapter()
