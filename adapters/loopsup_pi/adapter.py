"""The factories behind `--agent pi` and `--agent pi-tui`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from loopsup.ports import Agent, AgentEvents, Capabilities, Conversation, Launch
from loopsup_pi import arguments, executable, sessions
from loopsup_pi.agent import PiAgent
from loopsup_pi.extension import SOURCE
from loopsup_pi.linked import Guest, LinkedPi
from loopsup_pi.tui import NAME, TuiPi

DRAWING = "pyte"


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
            keep_partial=True,
            hold_tools=True,
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
        return executable.missing(command, env)

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        arguments.check(args)

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        return sessions.locate(ref, cwd, env)

    @property
    def files(self) -> Mapping[str, Path]:
        return {"pi-extension": SOURCE}

    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        if launch.invite is not None:
            return LinkedPi(launch, events, Guest(launch.invite))
        return PiAgent(launch, events)


class PiTuiAdapter(PiAdapter):
    """The same Pi in its own terminal interface, which a person can attach to."""

    @property
    def name(self) -> str:
        return NAME

    @property
    def summary(self) -> str:
        return "the Pi coding agent in its own terminal interface (pi), in your own Pi configuration"

    @property
    def capabilities(self) -> Capabilities:
        """What a person has put into its queue there is the person's to take back."""
        return replace(super().capabilities, withdraw=False, terminal=True)

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        if importlib.util.find_spec(DRAWING) is None:
            return f"the package {DRAWING} is missing; install it with: pip install 'loopsup[pty]'"
        return executable.missing(command, env, NAME)

    @property
    def files(self) -> Mapping[str, Path]:
        return {}

    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        return super().agent(launch, events) if launch.invite is not None else TuiPi(launch, events)
