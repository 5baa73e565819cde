"""A Pi of ours that is driven through its extension alone: what is told when it ends or moves, without a real one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import AgentStarted, AgentUnableError, Conversation, Launch, Permissions
from loopsup.testing.recording import Busy, Lost, RecordingEvents, Settled
from loopsup_pi.adapter import PiTuiAdapter
from loopsup_pi.linked import Guest, LinkedPi
from loopsup_pi.tui import TuiPi
from tests.adapters.test_pi_linked import Pi

SCENARIO_S = 100.0


class Own:
    """A body of ours without a process."""

    pid = 4711

    def __init__(self) -> None:
        self.setup: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = False

    async def bring(self, setup: str) -> None:
        self.setup.set_result(setup)

    async def end(self) -> None:
        self.ended = True


def launch(root: Path, **changes: Any) -> Launch:
    values: dict[str, Any] = {
        "session_id": "s1",
        "resume": None,
        "cwd": root / "asked",
        "command": None,
        "args": (),
        "env": {},
        "state_dir": root,
        "run_dir": root,
        "permissions": Permissions(),
        "log": lambda line: None,
    }
    return Launch(**{**values, **changes})


class Case:
    def __init__(self, root: Path) -> None:
        self.told, self.body = RecordingEvents(), Own()
        self.agent = LinkedPi(launch(root), self.told, self.body)
        self.starting = asyncio.ensure_future(self.agent.start())
        self.root = root

    async def connected(self) -> Pi:
        pi = Pi(json.loads(await self.body.setup), self.root)
        await pi.connect()
        return pi

    async def until(self, call: object) -> None:
        await self.told.wait_for(str(call), lambda: call in self.told.calls)


def drive(root: Path, scenario: Callable[[Case], Awaitable[None]]) -> None:
    async def run() -> None:
        case = Case(root)
        try:
            await scenario(case)
        finally:
            await case.agent.close()
        assert case.body.ended

    asyncio.run(asyncio.wait_for(run(), SCENARIO_S))


def test_it_is_ours_with_a_pid_and_the_directory_that_was_asked_for(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        pi = await it.connected()
        conversation = Conversation("pi-1", tmp_path / "s.jsonl", tmp_path / "asked")
        assert (await it.starting, it.agent.pid) == (AgentStarted(conversation), 4711)
        await pi.go()

    drive(tmp_path, scenario)


def test_an_end_at_the_start_is_why_it_cannot_be_used(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        await it.body.setup
        it.agent.ended("exit status 1")
        with pytest.raises(AgentUnableError, match="pi ended at its start: exit status 1"):
            await it.starting
        assert it.told.calls == []

    drive(tmp_path, scenario)


def test_quitting_it_is_a_loss_told_once(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        pi = await it.connected()
        await it.starting
        await pi.say(type="goodbye", reason="quit")
        await pi.go()
        for _ in range(2):
            it.agent.ended("exit status 0")
        assert it.told.calls == [Lost("exit status 0")]

    drive(tmp_path, scenario)


def test_leaving_the_conversation_in_a_run_settles_it(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        pi = await it.connected()
        await it.starting
        await pi.event("agent_start")
        await it.until(Busy())
        await pi.say(type="goodbye", reason="new")
        await it.until(Settled(True))
        await pi.go()

    drive(tmp_path, scenario)


def test_an_invited_pi_has_its_own_screen(tmp_path: Path) -> None:
    async def run() -> None:
        invited = launch(tmp_path, invite=lambda setup: None)
        agents = [PiTuiAdapter().agent(given, RecordingEvents()) for given in (launch(tmp_path), invited)]
        assert [type(agent) for agent in agents] == [TuiPi, LinkedPi]
        assert isinstance(agents[1]._body, Guest)  # type: ignore[attr-defined]

    asyncio.run(run())


# What Pi draws before any extension of it is there.
TRUST = """#!/bin/sh
printf '%s\\r\\n' '──────' ' Trust project folder?' ' /a/project' ' → Trust' '   Do not trust' \\
    ' ↑↓ navigate  enter select  escape/ctrl+c cancel' '──────'
exec sleep 600
"""


@pytest.mark.slow
def test_a_question_before_its_extension_is_there_is_told_at_once(tmp_path: Path) -> None:
    """Not after the minute an extension has to come."""
    pi = tmp_path / "pi"
    pi.write_text(TRUST)
    pi.chmod(0o755)
    (tmp_path / "asked").mkdir()

    async def run() -> str:
        given = launch(tmp_path, command=str(pi), env={"PATH": os.defpath})
        agent = TuiPi(given, RecordingEvents(), start_s=10 * SCENARIO_S)
        try:
            with pytest.raises(AgentUnableError) as told:
                await agent.start()
        finally:
            await agent.close()
        return str(told.value)

    assert asyncio.run(asyncio.wait_for(run(), SCENARIO_S)) == (
        "pi asks a question at its start; run it yourself in this directory once and answer it: "
        "Trust project folder? / /a/project / → Trust / Do not trust / ↑↓ navigate enter select escape/ctrl+c cancel"
    )
