"""What an `Agent` with the capability `terminal` has besides: a screen that a person can attach to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Seat(Protocol):
    """One terminal attached to an agent's screen."""

    def typed(self, data: bytes) -> None:
        """What came from its keyboard."""

    def resized(self, rows: int, cols: int) -> None: ...

    def redraw(self) -> None:
        """Show the whole picture again: something was left out."""

    def leave(self) -> None: ...


class Stage(Protocol):
    """The agent's own screen (capability `terminal`; `loopsup.terminal` has one)."""

    def join(self, show: Callable[[bytes], None], rows: int, cols: int) -> Seat:
        """Attach a terminal of this size; `show` gets the picture at once, then all that the agent writes."""
        ...


class Staged(Protocol):
    """What an `Agent` with the capability `terminal` has besides."""

    @property
    def stage(self) -> Stage: ...
