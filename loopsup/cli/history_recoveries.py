"""What `history` says of interrupted responses that went on: read from the event log, the journal has none of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.cli import render
from loopsup.wire.times import parse_instant


@dataclass(frozen=True, slots=True)
class Recovered:
    """An interrupted response that went on, after a wait."""

    at: int
    kind: str
    wait_ms: int


def recovered(events: Iterable[Mapping[str, Any]]) -> Iterator[Recovered]:
    for event in events:
        kind, wait_ms = event["data"].get("kind"), event["data"].get("waitMs")
        if isinstance(kind, str) and isinstance(wait_ms, int):
            yield Recovered(parse_instant(event["at"]), kind, wait_ms)


def recovery_words(recoveries: tuple[Recovered, ...]) -> list[str]:
    """`output limit ×2`, `usage limit ×1, planned to wait 5h`: one for each kind."""
    words = []
    for kind in dict.fromkeys(each.kind for each in recoveries):
        waits = [each.wait_ms for each in recoveries if each.kind == kind]
        planned = f", planned to wait {render.span(sum(waits))}" if sum(waits) else ""
        words.append(f"{render.RECOVERIES.get(kind, kind)} ×{len(waits)}{planned}")
    return words
