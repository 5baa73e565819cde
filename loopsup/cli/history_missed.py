"""The row of a missed wake in `history`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopsup.core.misfire import Missed
from loopsup.wire.status import missed_object
from loopsup.wire.times import instant


@dataclass(frozen=True, slots=True)
class MissedRow:
    """A wake that came too late. `at`: when it was found to be missed."""

    at: int
    missed: Missed

    def as_json(self) -> dict[str, Any]:
        return {"type": "missed", "at": instant(self.at), **missed_object(self.missed)}
