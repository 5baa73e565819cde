"""An adapter with a scripted program of ours behind it: what the harnesses of ACP and of the pty have in common.

The program is called with two arguments: its script, and a folder in which it writes down its conversations.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from loopsup.ports import Adapter, Agent, AgentStarted, Conversation, Launch, Origin, Permissions, Prompt, Stamp
from loopsup.testing.recording import RecordingEvents

A = TypeVar("A", bound=Agent)


class ScriptedHarness:
    """Most of `loopsup.testing.harness.Harness`; `write` takes a script of the program itself."""

    def __init__(self, tmp: Path, adapter: Adapter, program: Sequence[str]) -> None:
        self.adapter = adapter
        self.logged: list[str] = []
        self._program = program
        self._script = tmp / "script.json"
        self._work = tmp / "work"
        self._state = tmp / "state"
        for folder in (self._work, self._state):
            folder.mkdir(exist_ok=True)

    def launch(self, resume: Conversation | None = None, **changes: Any) -> Launch:
        values: dict[str, Any] = {
            "session_id": "00000000-0000-4000-8000-00000000000a",
            "resume": resume,
            "cwd": self._work,
            "command": None,
            "args": (*self._program, str(self._script), str(self._state)),
            "env": os.environ,
            "state_dir": self._state,
            "run_dir": self._state,
            "permissions": Permissions(),
            "log": self.logged.append,
            "carrier": None,
        }
        return Launch(**{**values, **changes})

    def write(self, prompts: list[list[dict[str, Any]]], **start: Any) -> None:
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"start": start, "prompts": prompts}))
        fresh.replace(self._script)

    def heard(self) -> list[str]:
        return [item["text"] for item in self.kept("user")]

    def tool_results(self) -> list[str]:
        return [item["text"] for item in self.kept("tool")]

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """What the program wrote down in its newest conversation."""
        files = sorted(self._state.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        lines = files[-1].read_text().splitlines() if files else []
        return [item for item in map(json.loads, lines) if item["kind"] == kind]


@dataclass
class Running(Generic[A]):
    """A started agent and what was told of it."""

    agent: A
    started: AgentStarted
    events: RecordingEvents
    sent: int = 0

    async def hand_over(self, text: str = "[loop iteration]") -> Any:
        self.sent += 1
        return await self.agent.prompt(Prompt(text, Origin.LOOP, f"m{self.sent}", Stamp("loop", self.sent, 1)))

    async def settled(self, count: int = 1) -> None:
        await self.events.wait_for("`settled`", lambda: len(self.events.settlements()) >= count, 100)

    async def round(self, text: str = "[loop iteration]") -> None:
        """One prompt to its settlement."""
        before = len(self.events.settlements())
        await self.hand_over(text)
        await self.settled(before + 1)


@contextlib.asynccontextmanager
async def started(agent: A, events: RecordingEvents) -> AsyncIterator[Running[A]]:
    """Started on entry, closed on exit."""
    try:
        yield Running(agent, await agent.start(), events)
    finally:
        await agent.close()
