"""A journal of format 1 as it was first released, with keys of later versions planted: it must always load.

The file is never regenerated. Whoever changes the format adds a file beside it.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

from loopsup.core.events import Event
from loopsup.core.model import PauseReason, Phase
from loopsup.wire.codec import tag
from loopsup.wire.journal import Record, decode_record, encode_record

GOLDEN = Path(__file__).parents[1] / "data" / "journal-v1.jsonl"


def without_planted(obj: Any) -> Any:
    if isinstance(obj, dict):
        return {key: without_planted(value) for key, value in obj.items() if key != "planted"}
    return [without_planted(item) for item in obj] if isinstance(obj, list) else obj


def holds(old: Any, new: Any) -> bool:
    """Everything of `old` is in `new`, which may have keys of later versions."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and holds(value, new[key]) for key, value in old.items())
    return bool(old == new)


def test_every_line_loads_with_every_value_it_had() -> None:
    lines = GOLDEN.read_bytes().splitlines()
    assert len(lines) == 24
    for number, line in enumerate(lines, start=1):
        assert b'"planted":' in line
        record = decode_record(line)
        assert isinstance(record, Record)
        assert record.seq == number
        written = json.loads(encode_record(record))
        known = without_planted(json.loads(line))
        assert holds(known, written), f"line {number}: a value of the old line is lost or changed"


def test_it_covers_every_event_state_and_pause_reason() -> None:
    objects = [json.loads(line) for line in GOLDEN.read_bytes().splitlines()]
    loops = [obj["loop"] for obj in objects if obj["loop"] is not None]
    assert {obj["event"]["type"] for obj in objects} == {tag(kind) for kind in typing.get_args(Event)}
    assert {loop["phase"]["type"] for loop in loops} == {tag(kind) for kind in typing.get_args(Phase)}
    reasons = {loop["phase"].get("reason") for loop in loops} - {None}
    assert reasons == set(PauseReason) - {PauseReason.UNKNOWN_VERSION}
