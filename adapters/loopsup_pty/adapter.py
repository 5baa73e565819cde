"""The factory behind `--agent pty` and the names of the profiles. Imports nothing of pyte."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from loopsup.ports import AgentEvents, Capabilities, Conversation, Launch, NotFoundError
from loopsup.process.executable import find, missing
from loopsup_pty.agent import PtyAgent
from loopsup_pty.arguments import Command, parse
from loopsup_pty.profiles import Profile

DRAWING = "pyte"


class PtyAdapter:
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
        """What can be seen on a screen and typed at a keyboard, and no more.

        Not `verbatim`: control characters of an objective become visible signs, as a terminal would act on them.
        """
        own_log, server = self._profile.log == "copilot", self._profile.mcp is not None
        return Capabilities(
            abort=True,
            resume=self._profile.resumes,
            verbatim=False,
            shell_tool=not server,
            turn_events=own_log,
            terminal=True,
        )

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        if importlib.util.find_spec(DRAWING) is None:
            return f"the package {DRAWING} is missing; install it with: pip install 'loopsup[pty]'"
        return missing(command or next(iter(self._profile.command), None), env, self._profile.install)

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        parse(self._profile, args)

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        raise NotFoundError(
            f"conversations of a terminal program cannot be looked up from outside, so '{ref}' cannot be adopted; "
            "start a new one, or reopen a session of loopsup with --session NAME"
        )

    def agent(self, launch: Launch, events: AgentEvents) -> PtyAgent:
        command = parse(self._profile, launch.args)
        return PtyAgent(command.profile, command_line(command, launch), launch, events)


def command_line(command: Command, launch: Launch) -> list[str]:
    """The argv, its first word resolved where it can be."""
    profile = command.profile
    argv = [*profile.command, *command.words]
    if launch.command is not None:
        argv = [launch.command, *argv[bool(profile.command) :]]
    identity = launch.session_id if launch.resume is None else launch.resume.id
    argv += [word.replace("{id}", identity) for word in (profile.new if launch.resume is None else profile.again)]
    if profile.mcp is not None and launch.carrier is not None:
        argv += [
            word.replace("{file}", str(launch.run_dir / f"mcp-{launch.session_id}.json")) for word in profile.mcp
        ]
    if (path := find(argv[0], launch.cwd, launch.env)) is not None:
        argv[0] = path
    return argv
