"""The real Copilot CLI in a closed world: its own home, a scripted model as its provider, no login, no network.

`CopilotWorld` makes the directories and the environment (for e2e tests too: `world.env` has `copilot` on PATH);
`running` gives a started adapter agent with a `Recording`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopsup.ports import Question
from loopsup_copilot.agent import CopilotAgent
from tests.support import agent_env, toolchain
from tests.support.agent_env import AgentWorld, started
from tests.support.model_server import Body, ModelServer, Reply, Tool, user_texts
from tests.support.recording import Recording

SCENARIO_S = 100.0  # one scenario takes a few seconds; the machine may be loaded
SESSION_ID = "00000000-0000-4000-8000-00000000c0de"
# Copilot puts the time in front of every user message; the rest is as it was sent.
_STAMP = re.compile(r"\A<current_datetime>[^<]*</current_datetime>\n\n")


def copilot_env(root: Path, url: str) -> dict[str, str]:
    """The variables of one Copilot below `root`, talking to the model at `url`."""
    return {
        "COPILOT_HOME": str(root / "copilot"),
        "COPILOT_PROVIDER_BASE_URL": url,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "fake-1",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "XDG_CACHE_HOME": str(toolchain.copilot_cache()),
    }


@dataclass
class CopilotWorld(AgentWorld):
    """Everything one Copilot needs."""

    session_id = SESSION_ID

    def __post_init__(self) -> None:
        super().__post_init__()
        self.env = {
            "PATH": f"{toolchain.ensure_copilot()}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            **copilot_env(self.root, self.url),
        }


Run = agent_env.Run[CopilotAgent]


class Free(Recording):
    """Allows whatever is asked, as the policy of `--allow-all` does. `agent` is set once it is there."""

    agent: CopilotAgent | None = None

    def ask(self, question: Question) -> None:
        super().ask(question)
        assert self.agent is not None
        self._answering = asyncio.ensure_future(self.agent.answer(question.id, True, ""))


@contextlib.asynccontextmanager
async def running(world: CopilotWorld, told: Recording | None = None, **changes: Any) -> AsyncIterator[Run]:
    """Started on entry, closed on exit."""
    log: list[str] = []
    told = told or Recording()
    async with started(CopilotAgent(world.launch(log, **changes), told), told, log) as run:
        yield run


def heard(body: Body) -> list[str]:
    """The user messages of a request as they were sent."""
    return [_STAMP.sub("", text) for text in user_texts(body)]


def tool_texts(body: Body) -> list[str]:
    """The tool results of a request."""
    return [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]


def task(prompt: str) -> Tool:
    """A call of Copilot's tool that starts a sub-agent."""
    arguments = {"agent_type": "general-purpose", "name": "helper", "description": "help", "prompt": prompt}
    return ("task", arguments)


def shell(command: str, **more: str) -> Tool:
    """A call of Copilot's shell tool; `mode="async"` runs it in the background."""
    return ("bash", {"command": command, "description": "a command", **more})


def drive(
    root: Path,
    script: list[Reply],
    scenario: Callable[[CopilotWorld, ModelServer], Awaitable[None]],
    rule: Callable[[Body], Reply | None] | None = None,
) -> None:
    """Run an async scenario with a Copilot world and its model."""
    with ModelServer(script, rule) as server:
        asyncio.run(asyncio.wait_for(scenario(CopilotWorld(root, server.url), server), SCENARIO_S))
