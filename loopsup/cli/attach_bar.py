"""The lines between the stream and the input of `attach`: how the loop stands now, and what can be typed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from loopsup.cli.headline import headline
from loopsup.cli.render import one_line
from loopsup.cli.status_words import recovery_words

LEAVING = "Enter sends a message · Ctrl-C or /quit leaves, the loop goes on"
AFTER = "Enter sends a message · Ctrl-C or /quit leaves"
ANSWERING = "/allow or /deny answers it"
GOING_ON = frozenset({"waiting", "queued", "running"})


def bar(status: Mapping[str, Any] | None, now: int, columns: int, zone: tzinfo | None = None) -> str:
    """Each line cut to the terminal's width; a question comes before everything else."""
    loop = None if status is None else status.get("loop")
    if status is None:
        lines = ["connecting"]
    elif loop is None:
        lines = ["no loop; `loopsup start` gives this session one", AFTER]
    else:
        lines = [*_question(loop), _state(loop, now, zone)]
        if recovery := loop.get("recovery"):
            lines.append(recovery_words(recovery, zone, now))
        lines.append(LEAVING if loop["state"] in GOING_ON else AFTER)
    return "\n".join(one_line(line, max(columns - 1, 1)) for line in lines)


def _state(loop: Mapping[str, Any], now: int, zone: tzinfo | None) -> str:
    count = f"iteration {loop['iterationCount']} of {loop['maxIterations']}"
    first, *more = headline(loop, now, zone).split("\n")
    beside = "" if loop["state"] == "running" else f" · {count}"
    return " · ".join([first.rstrip(".") + beside, *more])


def _question(loop: Mapping[str, Any]) -> list[str]:
    question = loop.get("question")
    if question is None:
        return []
    return [f"QUESTION ({ANSWERING}) {question['tool']}: {question['text']}"]
