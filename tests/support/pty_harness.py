"""The pty adapter with the scripted program: for the conformance suite, and for tests of single faults."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup.testing.recording import RecordingEvents
from loopsup_pty.adapter import PtyAdapter
from loopsup_pty.agent import PtyAgent
from loopsup_pty.profiles import ANY, Profile
from tests.support import fake_tui, scripted_harness
from tests.support.scripted_harness import ScriptedHarness, started

TUI = (sys.executable, "-I", "-S", fake_tui.__file__)
READY, EMPTY, BUSY = r"^❯", r"^❯$", r"^◎ working"
RESUMABLE = replace(ANY, new=("--id", "{id}"), again=("--again", "{id}"))
BY_SILENCE = replace(RESUMABLE, quiet_s=6.0)  # on a busy machine even a spinner stands still for seconds
SEEN = replace(RESUMABLE, ready=READY, empty=EMPTY, busy=BUSY, quiet_s=0.3)
OPTIONS = ("--ready", READY, "--empty", EMPTY, "--busy", BUSY, "--new", "--id {id}", "--resume", "--again {id}")

Running = scripted_harness.Running[PtyAgent]


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


class PtyHarness(ScriptedHarness):
    """See `loopsup.testing.harness.Harness`."""

    def __init__(self, tmp: Path, profile: Profile = SEEN) -> None:
        super().__init__(tmp, PtyAdapter(profile), TUI)
        self.profile = profile

    def script(self, *scenarios: Scenario) -> None:
        self.write([behaviour(scenario) for scenario in scenarios])


@contextlib.asynccontextmanager
async def running(harness: PtyHarness, **changes: Any) -> AsyncIterator[Running]:
    """Started on entry, closed on exit."""
    events = RecordingEvents()
    agent = harness.adapter.agent(harness.launch(**changes), events)
    assert isinstance(agent, PtyAgent)
    async with started(agent, events) as it:
        yield it
