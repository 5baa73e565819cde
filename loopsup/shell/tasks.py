"""Work beside the main loop: tasks that are kept, whose faults are told, and which end with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """`fault` gets what a task raised; `over` is called after each one that ended."""

    def __init__(self, fault: Callable[[BaseException], None], over: Callable[[], None]) -> None:
        self._fault = fault
        self._over = over
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def end(self) -> None:
        """What still waits for the agent (an answer to a hand-over, say) waits for nobody now."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault(error)
        self._over()
