"""How the checks drive an agent: started in a context that always closes it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from loopsup.ports import (
    Accepted,
    Agent,
    AgentStarted,
    Capabilities,
    Conversation,
    Doing,
    Handover,
    Origin,
    Prompt,
    Stamp,
)
from loopsup.testing.harness import Harness, Scenario
from loopsup.testing.recording import CheckFailedError, RecordingEvents

MARK = "LOOPSUP_CONFORMANCE"  # a variable the agent's process must have in its environment
STAMP = Stamp("00000000-0000-4000-8000-000000000001", 1, 1)


@dataclass
class Driven:
    """A running agent and everything it said."""

    harness: Harness
    agent: Agent
    started: AgentStarted
    events: RecordingEvents = field(default_factory=RecordingEvents)
    sent: int = 0

    @property
    def can(self) -> Capabilities:
        return self.harness.adapter.capabilities

    async def hand_over(self, text: str, stamp: Stamp | None = STAMP) -> Handover:
        """A prompt of the loop (with a stamp) or of a person (without)."""
        self.sent += 1
        origin = Origin.USER if stamp is None else Origin.LOOP
        return await self.agent.prompt(Prompt(text, origin, f"message-{self.sent}", stamp))

    async def accepted(self, text: str = "[loop iteration]\nGo on.", stamp: Stamp | None = STAMP) -> None:
        """Hand over; it must be taken."""
        outcome = await self.hand_over(text, stamp)
        require(isinstance(outcome, Accepted), f"`prompt` on an idle agent must give Accepted, not {outcome}")

    async def round(self, text: str = "[loop iteration]\nGo on.", stamp: Stamp | None = STAMP) -> None:
        """One prompt to its settlement."""
        before = len(self.events.settlements())
        await self.accepted(text, stamp)
        await self.events.wait_for("`settled`", lambda: len(self.events.settlements()) > before)

    async def working(self, text: str = "[loop iteration]\nGo on.") -> None:
        """One prompt, up to the moment where the model is being asked."""
        await self.accepted(text)
        await self.events.wait_for("`doing(MODEL)`", lambda: self.events.now_doing() is Doing.MODEL)


@asynccontextmanager
async def driven(
    harness: Harness, *scenarios: Scenario, resume: Conversation | None = None, hold_tools: bool = False
) -> AsyncIterator[Driven]:
    """Script (a resumed agent goes on with its script), start, and close at the end."""
    if scenarios:
        harness.script(*scenarios)
    launch = dataclasses.replace(harness.launch(resume), hold_tools=hold_tools)
    events = RecordingEvents()
    agent = harness.adapter.agent(dataclasses.replace(launch, env={**launch.env, MARK: "1"}), events)
    try:
        yield Driven(harness, agent, await agent.start(), events)
    finally:
        await agent.close()


def require(holds: object, mend: str) -> None:
    """CheckFailedError with what must be mended."""
    if not holds:
        raise CheckFailedError(mend)
