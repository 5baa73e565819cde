"""The factory behind `--agent acp` and the short names. Imports nothing of the SDK."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from loopsup.errors import UsageError
from loopsup.ports import AgentEvents, Capabilities, Conversation, Launch, NotFoundError
from loopsup.process.executable import find, missing
from loopsup_acp.agent import AcpAgent
from loopsup_acp.profiles import Profile

SDK = "acp"  # import name of the PyPI package agent-client-protocol


class AcpAdapter:
    """See `loopsup.ports.Adapter`."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    @property
    def name(self) -> str:
        return self._profile.name

    @property
    def summary(self) -> str:
        return self._profile.summary

    @property
    def capabilities(self) -> Capabilities:
        """What the protocol can, and no more: no turn events, no tool of ours, no end of a turn by a tool's result.

        `permissions` is false although questions are answered: which tools it asks about is each agent's own
        affair (all of them let some run), so a denial could not be promised.
        """
        return Capabilities(abort=True, resume=True)

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        if importlib.util.find_spec(SDK) is None:
            return "the package agent-client-protocol is missing; install it with: pip install 'loopsup[acp]'"
        return missing(command or next(iter(self._profile.command), None), env, self._profile.install)

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        if not self._profile.command and (not args or not args[0].strip()):
            raise UsageError(
                "the agent 'acp' needs the command line of an ACP agent: loopsup start … OBJECTIVE -- COMMAND ARGS…"
            )

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        raise NotFoundError(
            f"a conversation of an ACP agent cannot be looked up before it runs, so '{ref}' cannot be adopted; "
            "start a new one, or reopen a session of loopsup with --session NAME"
        )

    def agent(self, launch: Launch, events: AgentEvents) -> AcpAgent:
        return AcpAgent(self._profile, command_line(self._profile, launch), launch, events)


def command_line(profile: Profile, launch: Launch) -> list[str]:
    """The argv, its first word resolved where it can be."""
    argv = [*profile.command, *launch.args]
    if launch.command is not None:
        argv = [launch.command, *argv[bool(profile.command) :]]
    if argv and (path := find(argv[0], launch.cwd, launch.env)) is not None:
        argv[0] = path
    return argv
