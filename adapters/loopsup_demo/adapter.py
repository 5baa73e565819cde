"""What loopsup knows about the demo agent before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loopsup.errors import UsageError
from loopsup.ports import Agent, AgentEvents, Capabilities, Conversation, Launch, NotFoundError
from loopsup_demo import arguments
from loopsup_demo.driver import DemoAgent, no_command

CAPABILITIES = Capabilities(
    abort=True,
    native_tool=True,
    terminate_on_tool=True,
    turn_events=True,
    resume=True,
    hold_tools=True,
    process=True,
)


class DemoAdapter:
    """See `loopsup.ports.Adapter`."""

    name = "demo"
    summary = "an agent without a model: looks at a status file or a command's exit status and decides from it"
    capabilities = CAPABILITIES

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        return None if command is None else no_command(command)

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        try:
            options = arguments.parse(args)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if options.script is not None and not (cwd / options.script).is_file():
            raise UsageError(f"the script {options.script} is not a file")

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        raise NotFoundError(
            f"the demo agent has no conversation '{ref}' to adopt: it keeps them inside the sessions of loopsup"
        )

    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        return DemoAgent(launch, events)
