"""The real Pi in a closed world: its own agent directory, a scripted model, no network.

`PiWorld` makes the directories and the environment (for e2e tests too: `world.env` has `pi` on PATH);
`running` gives a started adapter agent with a `Recording`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopsup.ports import HOLD_S
from loopsup_pi.agent import PiAgent
from tests.support import agent_env, toolchain
from tests.support.agent_env import AgentWorld, started
from tests.support.model_server import ModelServer, Reply
from tests.support.recording import Recording

SCENARIO_S = 120.0  # one scenario takes two seconds
SETTINGS: dict[str, Any] = {
    "defaultProvider": "fake",
    "defaultModel": "fake-1",
    "retry": {"baseDelayMs": 20, "maxRetries": 2},
    "enableInstallTelemetry": False,
}


@dataclass
class PiWorld(AgentWorld):
    """Everything one Pi needs. `settings` are its own."""

    session_id = "loop-1"
    folders = (*AgentWorld.folders, "agent")

    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        model = {"id": "fake-1", "contextWindow": 128000, "maxTokens": 4096}
        provider = {"baseUrl": self.url, "api": "openai-completions", "apiKey": "fake-key", "models": [model]}
        self._write("models.json", {"providers": {"fake": provider}})
        self._write("settings.json", {**SETTINGS, **self.settings})
        self.env = {
            "PATH": f"{toolchain.ensure()}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "PI_CODING_AGENT_DIR": str(self.root / "agent"),
            "PI_OFFLINE": "1",
            "LANG": "C.UTF-8",
        }

    def _write(self, name: str, obj: object) -> None:
        (self.root / "agent" / name).write_text(json.dumps(obj))

    def extension(self, name: str, body: str) -> None:
        """An extension of the user's, loaded with the normal configuration."""
        folder = self.root / "agent" / "extensions"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.ts").write_text(f"export default function (pi: any) {{\n{body}\n}}\n")


Run = agent_env.Run[PiAgent]


@contextlib.asynccontextmanager
async def running(
    world: PiWorld, told: Recording | None = None, hold_s: float = HOLD_S, **changes: Any
) -> AsyncIterator[Run]:
    """Started on entry, closed on exit."""
    log: list[str] = []
    told = told or Recording()
    async with started(PiAgent(world.launch(log, **changes), told, hold_s=hold_s), told, log) as run:
        yield run


def drive(
    root: Path, script: list[Reply], scenario: Callable[[PiWorld, ModelServer], Awaitable[None]], **settings: Any
) -> None:
    """Run an async scenario with a Pi world and its model."""
    with ModelServer(script) as server:
        world = PiWorld(root, server.url, settings)
        asyncio.run(asyncio.wait_for(scenario(world, server), SCENARIO_S))
