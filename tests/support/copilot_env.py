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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopsup.ports import AgentStarted, Conversation, Launch, Origin, Permissions, Prompt, Question, Stamp
from loopsup_copilot.agent import CopilotAgent
from tests.support import toolchain
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
class CopilotWorld:
    """Everything one Copilot needs below `root`."""

    root: Path
    url: str
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("home", "work", "state", "run"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
        self.env = {
            "PATH": f"{toolchain.ensure_copilot()}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            **copilot_env(self.root, self.url),
        }

    @property
    def work(self) -> Path:
        return self.root / "work"

    def launch(self, log: list[str], **changes: Any) -> Launch:
        values: dict[str, Any] = {
            "session_id": SESSION_ID,
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
class Run:
    """A started Copilot and what it told."""

    agent: CopilotAgent
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
    agent = CopilotAgent(world.launch(log, **changes), told)
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
