"""A real agent's adapter in a closed world: what the worlds of Pi and of Copilot have in common."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from loopsup.ports import Agent, AgentStarted, Conversation, Launch, Origin, Permissions, Prompt, Stamp
from tests.support.recording import Recording

A = TypeVar("A", bound=Agent)


@dataclass
class AgentWorld:
    """Everything one agent needs below `root`, talking to the model at `url`."""

    session_id: ClassVar[str]
    folders: ClassVar[tuple[str, ...]] = ("home", "work", "state", "run")

    root: Path
    url: str
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        for name in self.folders:
            (self.root / name).mkdir(mode=0o700, exist_ok=True)

    @property
    def work(self) -> Path:
        return self.root / "work"

    def launch(self, log: list[str], **changes: Any) -> Launch:
        values: dict[str, Any] = {
            "session_id": self.session_id,
            "resume": None,
            "cwd": self.work,
            "command": None,
            "args": (),
            "env": self.env,
            "state_dir": self.root / "state",
            "run_dir": self.root / "run",
            "permissions": Permissions(),
            "log": log.append,
        }
        return Launch(**{**values, **changes})


@dataclass
class Run(Generic[A]):
    """A started agent and what it told."""

    agent: A
    started: AgentStarted
    told: Recording
    log: list[str]

    @property
    def conversation(self) -> Conversation:
        return self.started.conversation

    async def round(self, prompt: Prompt) -> None:
        """One prompt to its settlement."""
        before = len(self.told.all("settled"))
        outcome = await self.agent.prompt(prompt)
        assert type(outcome).__name__ == "Accepted", outcome
        await self.told.until("settled", before + 1)


@contextlib.asynccontextmanager
async def started(agent: A, told: Recording, log: list[str]) -> AsyncIterator[Run[A]]:
    """Started on entry, closed on exit."""
    try:
        yield Run(agent, await agent.start(), told, log)
    finally:
        await agent.close()


def stamped(text: str = "[iteration 1] look", iteration: int = 1) -> Prompt:
    """An envelope of the loop."""
    return Prompt(text, Origin.LOOP, f"m{iteration}", Stamp("loop", iteration, iteration))


def said(text: str) -> Prompt:
    """A message of the user's."""
    return Prompt(text, Origin.USER, "u1")
