"""Writes docs/states.md from the table the core is held to: `python -m tests.support.make_docs` (or `make docs`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from loopsup.core.events import BranchMoved, Start
from loopsup.core.model import TERMINAL, PauseReason, State
from loopsup.core.table import EVENTS, PLACES, TABLE, Place

STATES = Path(__file__).resolve().parents[2] / "docs" / "states.md"

HEAD = """\
# States

Generated from `loopsup/core/table.py` by `make docs`; a test compares. The core is tested against the same table: no
transition outside it happens, and each one in it does.

| state | meaning |
|---|---|
| `waiting` | the wake timer is armed |
| `queued` | a wake is due, and waits until the agent is there and idle |
| `running` | an iteration is under way |
| `paused` | resumable; the pause reason says why: {reasons} |
| `completed`, `failed`, `stopped` | ended; `start` begins a new loop |

The deadline is armed in the first four. An iteration counts from the moment its envelope is handed over: the record
is written just before, and taken back if the envelope provably did not arrive.

"""
DIAGRAM_NOTE = """
Left out of the drawing: what stays where it is, and `branch moved` (the conversation went to another branch, which
has a loop of its own or none; an active one comes back paused).

## Every state, every input

Where one step of the input (row) can take a loop from each state (column); `·` leaves it where it is.

"""


def label(event: type) -> str:
    """`HandoverRefused` -> `handover refused`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.__name__).lower()


def place(value: Place) -> str:
    return "no loop" if value is None else value.value


def ordered(places: frozenset[Place]) -> list[Place]:
    return [value for value in PLACES if value in places]


def diagram() -> str:
    """Mermaid: one arrow for each pair of places, with everything that leads along it."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for source in PLACES:
        for target in PLACES:
            why = [
                label(event)
                for event in EVENTS
                if event is not BranchMoved and target != source and target in TABLE[source, event]
            ]
            if source in TERMINAL and why == [label(Start)]:
                continue  # as from "no loop"; eleven more arrows would say nothing
            if why:
                lines.append(f"    {'[*]' if source is None else source.value} --> {place(target)}: {', '.join(why)}")
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    return "\n".join([*lines, "```"]) + "\n"


def matrix() -> str:
    rows = ["| input | " + " | ".join(place(source) for source in PLACES) + " |", "|---" * (len(PLACES) + 1) + "|"]
    for event in EVENTS:
        cells = [
            "·"
            if TABLE[source, event] == {source}
            else ", ".join(place(target) for target in ordered(TABLE[source, event]))
            for source in PLACES
        ]
        rows.append(f"| {label(event)} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def states_page() -> str:
    reasons = ", ".join(f"`{reason.value}`" for reason in PauseReason)
    return HEAD.format(reasons=reasons) + diagram() + DIAGRAM_NOTE + matrix()


if __name__ == "__main__":
    STATES.write_text(states_page(), encoding="utf-8")
    sys.stdout.write(f"{STATES}\n")
