"""The ACP adapter with the scripted agent: for the conformance suite, and for tests of single faults."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopsup.ports import Adapter, AgentStarted, Carrier, Conversation, Launch, Origin, Permissions, Prompt, Stamp
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup.testing.recording import RecordingEvents
from loopsup_acp import create
from loopsup_acp.agent import AcpAgent
from loopsup_acp.profiles import ANY, Profile
from tests.support import acp_agent

AGENT = (sys.executable, "-I", "-S", acp_agent.__file__)


def behaviour(scenario: Scenario) -> list[dict[str, Any]]:
    """The steps of a scenario. No decision: it does not come through the adapter."""
    match scenario:
        case Talk(text):
            return [{"say": text}]
        case Decide(calls, with_tool):
            tool = [{"tool": "echo harmless"}] if with_tool else []
            return [*tool, *({"claim": dict(call)} for call in calls), {"say": "Decided."}]
        case UseTool():
            return [{"tool": "echo harmless"}, {"say": "The tool has run."}]
        case Hang():
            return [{"hang": True}]


async def at_once(seconds: float) -> str | None:
    """A carrier that is there."""
    return None


class AcpHarness:
    """See `loopsup.testing.harness.Harness`; `write` takes a script of the agent itself."""

    def __init__(self, tmp: Path) -> None:
        self.adapter: Adapter = create()
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
            "args": (*AGENT, str(self._script), str(self._state)),
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
        """What the agent wrote down in its newest conversation."""
        files = sorted(self._state.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        lines = files[-1].read_text().splitlines() if files else []
        return [item for item in map(json.loads, lines) if item["kind"] == kind]


@dataclass
class Running:
    """A started agent and what it told."""

    agent: AcpAgent
    started: AgentStarted
    events: RecordingEvents = field(default_factory=RecordingEvents)
    sent: int = 0

    async def hand_over(self, text: str = "[loop iteration]") -> Any:
        self.sent += 1
        return await self.agent.prompt(Prompt(text, Origin.LOOP, f"m{self.sent}", Stamp("loop", self.sent, 1)))

    async def round(self, text: str = "[loop iteration]") -> None:
        """One prompt to its settlement."""
        before = len(self.events.settlements())
        await self.hand_over(text)
        await self.events.wait_for("`settled`", lambda: len(self.events.settlements()) > before)


@contextlib.asynccontextmanager
async def running(
    harness: AcpHarness, resume: Conversation | None = None, profile: Profile = ANY, **changes: Any
) -> AsyncIterator[Running]:
    """Started on entry, closed on exit."""
    events = RecordingEvents()
    launch = harness.launch(resume, **changes)
    agent = AcpAgent(profile, launch.args, launch, events)
    try:
        yield Running(agent, await agent.start(), events)
    finally:
        await agent.close()


def a_carrier(offered: Any = at_once) -> Carrier:
    """One that leads nowhere."""
    return Carrier("loopsup", sys.executable, ("-c", ""), {"LOOPSUP_TOKEN": "t0ken"}, offered)
