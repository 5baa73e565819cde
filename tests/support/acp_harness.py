"""The ACP adapter with the scripted agent: for the conformance suite, and for tests of single faults."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loopsup.ports import Carrier, Conversation
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup.testing.recording import RecordingEvents
from loopsup_acp import create
from loopsup_acp.agent import AcpAgent
from loopsup_acp.profiles import ANY, Profile
from tests.support import acp_agent
from tests.support.scripted_harness import Running, ScriptedHarness, started

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


class AcpHarness(ScriptedHarness):
    """See `loopsup.testing.harness.Harness`."""

    def __init__(self, tmp: Path) -> None:
        super().__init__(tmp, create(), AGENT)

    def script(self, *scenarios: Scenario) -> None:
        self.write([behaviour(scenario) for scenario in scenarios])


@contextlib.asynccontextmanager
async def running(
    harness: AcpHarness, resume: Conversation | None = None, profile: Profile = ANY, **changes: Any
) -> AsyncIterator[Running[AcpAgent]]:
    """Started on entry, closed on exit."""
    events = RecordingEvents()
    launch = harness.launch(resume, **changes)
    async with started(AcpAgent(profile, launch.args, launch, events), events) as it:
        yield it


def a_carrier(offered: Any = at_once) -> Carrier:
    """One that leads nowhere."""
    return Carrier("loopsup", sys.executable, ("-c", ""), {"LOOPSUP_TOKEN": "t0ken"}, offered)
