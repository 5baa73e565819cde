"""The wall clock of an end-to-end world, set by the test."""

from __future__ import annotations

from tests.support.world import World

HOUR = 3_600_000
DAY = 24 * HOUR


class Steps:
    """Made before the first session of the world starts."""

    def __init__(self, world: World) -> None:
        self._file = world.root / "step"
        world.env["LOOPSUP_CLOCK_STEP"] = str(self._file)

    def set(self, ms: int) -> None:
        """From now on the wall clock is this far ahead of the machine's."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(ms))
        fresh.replace(self._file)
