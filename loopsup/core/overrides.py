"""What a person says about recovery when a loop starts or goes on: a value of its own, cheap to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a person said for this session; None: as configured. `max_resumes`: a number or "unlimited"."""

    enabled: bool | None = None
    max_resumes: int | str | None = None
    stream_delay_ms: int | None = None


NOTHING_SAID = Overrides()

# What the verb says when it is done.
TOLD = {True: "interrupted responses are recovered", False: "interrupted responses are left as they are"}
