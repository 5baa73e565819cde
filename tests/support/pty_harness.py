"""The pty adapter with the scripted program: for the conformance suite, and for tests of single faults."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loopsup.ports import Adapter, AgentStarted, Conversation, Launch, Origin, Permissions, Prompt, Stamp
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup.testing.recording import RecordingEvents
from loopsup_pty.adapter import PtyAdapter
from loopsup_pty.agent import PtyAgent
from loopsup_pty.profiles import ANY, Profile
from tests.support import fake_tui

TUI = (sys.executable, "-I", "-S", fake_tui.__file__)
READY, EMPTY, BUSY = r"^❯", r"^❯$", r"^◎ working"
RESUMABLE = replace(ANY, new=("--id", "{id}"), again=("--again", "{id}"))
SEEN = replace(RESUMABLE, ready=READY, empty=EMPTY, busy=BUSY, quiet_s=0.3)
OPTIONS = ("--ready", READY, "--empty", EMPTY, "--busy", BUSY, "--new", "--id {id}", "--resume", "--again {id}")


def behaviour(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario. No decision: it does not come through the adapter."""
    match scenario:
        case Talk(text):
            return [{"say": text}]
        case Decide():
            return [{"say": "Decided."}]
        case UseTool():
            return [{"run": ["true"]}, {"say": "The tool has run."}]
        case Hang():
            return [{"hang": True}]


class PtyHarness:
    """See `loopsup.testing.harness.Harness`; `write` takes a script of the program itself."""

    def __init__(self, tmp: Path, profile: Profile = SEEN) -> None:
        self.profile = profile
        self.adapter: Adapter = PtyAdapter(profile)
        self.logged: list[str] = []
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
            "args": (*TUI, str(self._script), str(self._state)),
            "env": os.environ,
            "state_dir": self._state,
            "run_dir": self._state,
            "permissions": Permissions(),
            "log": self.logged.append,
            "carrier": None,
        }
        return Launch(**{**values, **changes})

    def script(self, *scenarios: Scenario) -> None:
        self.write([behaviour(scenario) for scenario in scenarios])

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
class Running:
    """A started program and what was told of it."""

    agent: PtyAgent
    started: AgentStarted
    events: RecordingEvents = field(default_factory=RecordingEvents)
    sent: int = 0

    async def hand_over(self, text: str = "[loop iteration]") -> Any:
        self.sent += 1
        return await self.agent.prompt(Prompt(text, Origin.LOOP, f"m{self.sent}", Stamp("loop", self.sent, 1)))

    async def settled(self, count: int = 1) -> None:
        await self.events.wait_for("`settled`", lambda: len(self.events.settlements()) >= count, 100)


@contextlib.asynccontextmanager
async def running(harness: PtyHarness, **changes: Any) -> AsyncIterator[Running]:
    """Started on entry, closed on exit."""
    events = RecordingEvents()
    agent = harness.adapter.agent(harness.launch(**changes), events)
    assert isinstance(agent, PtyAgent)
    try:
        yield Running(agent, await agent.start(), events)
    finally:
        await agent.close()
