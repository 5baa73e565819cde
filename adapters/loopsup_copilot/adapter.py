"""The factory behind `--agent copilot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loopsup.ports import Agent, AgentEvents, Capabilities, Conversation, Launch
from loopsup_copilot import arguments, executable, provider, sessions


class CopilotAdapter:
    """See `loopsup.ports.Adapter`."""

    @property
    def name(self) -> str:
        return "copilot"

    @property
    def summary(self) -> str:
        return "the GitHub Copilot CLI, headless through its SDK (pip install 'loopsup[copilot]')"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            abort=True,
            native_tool=True,
            terminate_on_tool=True,
            turn_events=True,
            usage=True,
            resume=True,
            permissions=True,
            deny_tools=True,
            hold_tools=True,
            task_complete=True,
            verbatim=False,  # Copilot puts the time in front of a message and trims its end
        )

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        return executable.missing(command, env) or provider.offline(env)

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        arguments.parse(args, cwd)

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        return sessions.locate(ref, cwd, env)

    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        from loopsup_copilot.agent import CopilotAgent

        return CopilotAgent(launch, events)
