"""The factory behind `--agent pi`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from loopsup.ports import AgentEvents, AgentUnableError, Capabilities, Conversation, Launch
from loopsup_pi import arguments, sessions
from loopsup_pi.agent import PiAgent

COMMAND = "pi"
INSTALL = "npm install -g @earendil-works/pi-coding-agent"


class PiAdapter:
    """See `loopsup.ports.Adapter`."""

    @property
    def name(self) -> str:
        return "pi"

    @property
    def summary(self) -> str:
        return "the Pi coding agent, headless (pi --mode rpc), in your own Pi configuration"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            abort=True,
            rewind=True,
            continue_without_message=True,
            native_tool=True,
            terminate_on_tool=True,
            follow_up_queue=True,
            withdraw=True,
            turn_events=True,
            usage=True,
            resume=True,
            permissions=False,
            deny_tools=True,
            branches=True,
        )

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        if _executable(command, env) is not None:
            return None
        if command is not None:
            return (
                f"the configured command {command!r} of agent pi is not an executable file; "
                "correct `command` in [agents.pi] of the configuration"
            )
        return (
            f"the command `{COMMAND}` is not on PATH; install it with `{INSTALL}` (needs node 22.19 or newer), "
            "or name it as `command` in [agents.pi] of the configuration"
        )

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        arguments.check(args)

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        return sessions.locate(ref, cwd, env)

    def agent(self, launch: Launch, events: AgentEvents) -> PiAgent:
        executable = _executable(launch.command, launch.env)
        if executable is None:
            raise AgentUnableError(self.missing(launch.command, launch.env) or "pi cannot be found")
        return PiAgent(launch, events, executable)


def _executable(command: str | None, env: Mapping[str, str]) -> str | None:
    """The absolute path, so that a directory given to the agent cannot change which Pi is meant."""
    found = shutil.which(os.path.expanduser(command or COMMAND), path=env.get("PATH", os.defpath))  # noqa: PTH111
    return os.path.abspath(found) if found is not None else None  # noqa: PTH100
