"""The start of a terminal program: from its first byte to its empty prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from loopsup.ports import AgentUnableError
from loopsup.terminal.stage import Stage
from loopsup_pty.reading import MENU_ROWS, Reading, Seen

READY_S = 60.0  # a CLI that unpacks itself at its very first start takes a third of it
PASTE_S = 10.0  # a prompt that has stood for so long without taking pastes takes none; some load for seconds first
LOOK_S = 0.1  # between two looks while something moves


async def until_ready(
    name: str, reading: Reading, stage: Stage, alive: Callable[[], bool], ended: Callable[[], Awaitable[str]]
) -> None:
    """At its prompt, and taking pastes. AgentUnableError, with what is on its screen."""
    clock = asyncio.get_running_loop().time
    end = clock() + READY_S
    idle_since: float | None = None
    while clock() < end:
        if not alive():
            raise AgentUnableError(f"{name} ended at its start: {await ended()}")
        seen = reading.look(clock())
        if seen is Seen.MENU:
            raise AgentUnableError(
                f"{name} asks a question at its start; run it yourself in this directory once and answer "
                f"it: {reading.shown(MENU_ROWS)}"
            )
        if seen is Seen.IDLE and stage.modes.bracketed_paste:
            return
        idle_since = (idle_since or clock()) if seen is Seen.IDLE and reading.drawn() else None
        if idle_since is not None and clock() - idle_since >= PASTE_S:
            raise AgentUnableError(
                f"{name} does not take pasted text (bracketed paste), so no message can go in safely"
            )
        await asyncio.sleep(LOOK_S)
    raise AgentUnableError(f"{name} was not at its prompt within {READY_S:.0f} s: {reading.shown()}")
