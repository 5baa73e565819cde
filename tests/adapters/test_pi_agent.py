"""The agent against a Pi that misbehaves: order, bounds, noise, a process that will not end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from loopsup.ports import Accepted, AgentUnableError, Launch, Permissions, Unknown
from loopsup_pi.agent import PiAgent
from tests.support import fake_pi
from tests.support.agent_env import stamped
from tests.support.recording import Recording

pytestmark = pytest.mark.slow


@contextlib.asynccontextmanager
async def fake(
    tmp_path: Path, mode: str = "", **bounds: float
) -> AsyncIterator[tuple[PiAgent, Recording, list[str]]]:
    log: list[str] = []
    told = Recording()
    launch = Launch(
        session_id="s-1",
        resume=None,
        cwd=tmp_path,
        command=str(fake_pi.install(tmp_path)),
        args=(),
        env={"FAKE_PI": mode, "PATH": "/usr/bin:/bin"},
        state_dir=tmp_path,
        run_dir=tmp_path,
        permissions=Permissions(),
        log=log.append,
    )
    agent = PiAgent(launch, told, **bounds)
    try:
        yield agent, told, log
    finally:
        await agent.close()


def test_a_decision_that_overtakes_the_acceptance_belongs_to_the_prompt(tmp_path: Path) -> None:
    """The extension's socket and Pi's stdout are two channels: the call of a fast model may be read first."""

    async def scenario() -> None:
        async with fake(tmp_path, "hasty") as (agent, told, _):
            await agent.start()
            prompt = stamped("x", 1)
            assert await agent.prompt(prompt) == Accepted()
            await told.until("decide")
            assert [call.stamp for call in told.all("decide")] == [prompt.stamp]

    asyncio.run(scenario())


def test_the_acceptance_is_seen_before_a_settlement_of_the_same_chunk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake(tmp_path) as (agent, told, _):
            await agent.start()
            for number in range(1, 20):
                asked = agent.prompt(stamped("x", number))
                assert await (asyncio.wait_for(asked, 60) if number % 2 else asked) == Accepted()
                assert len(told.all("settled")) == number - 1
                await told.until("settled", number)
        assert "busy" not in told.names()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mode", "start_s", "words"),
    [
        ("mute", 1.0, "pi did not get ready within 1 s: it did not answer"),
        ("no_hello", 8.0, "pi did not get ready within 8 s: loopsup's extension inside it never said hello"),
        ("no_tool", 60.0, "pi runs without the tool loop_control, which its arguments or settings leave out"),
    ],
)
def test_a_start_that_never_completes_says_what_was_missing(
    tmp_path: Path, mode: str, start_s: float, words: str
) -> None:
    async def scenario() -> None:
        async with fake(tmp_path, mode, start_s=start_s) as (agent, told, _):
            with pytest.raises(AgentUnableError) as caught:
                await agent.start()
            assert str(caught.value) == words
            assert agent.pid is not None
            pid = agent.pid
        assert not psutil.pid_exists(pid)
        assert told.calls == []

    asyncio.run(scenario())


def test_no_answer_to_a_prompt_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake(tmp_path, "silent", handover_s=0.2) as (agent, _, _log):
            await agent.start()
            assert await agent.prompt(stamped()) == Unknown("pi did not answer within 0.2 s")

    asyncio.run(scenario())


def test_an_answer_that_comes_late_still_carries_its_run(tmp_path: Path) -> None:
    """Unknown, then it started after all: its settlement is told, and it is not taken for a run of Pi's own."""

    async def scenario() -> None:
        async with fake(tmp_path, "late", handover_s=1.0) as (agent, told, _):
            await agent.start()
            assert isinstance(await agent.prompt(stamped("one")), Unknown)
            agent._handover_s = 60.0  # now it does answer
            assert await agent.prompt(stamped("two", 2)) == Accepted()
            await told.until("settled", 2)
        assert "busy" not in told.names()

    asyncio.run(scenario())


def test_noise_on_stdout_is_logged_and_skipped(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake(tmp_path, "garbage") as (agent, told, log):
            await agent.start()
            assert await agent.prompt(stamped()) == Accepted()
            await told.until("settled")
            assert len([line for line in log if "no record" in line]) == 5
            assert "b'oops'" in log[0]

    asyncio.run(scenario())


def test_a_pi_that_ignores_everything_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake(tmp_path, "deaf") as (agent, told, _):
            await agent.start()
            assert await agent.prompt(stamped()) == Accepted()
            await told.until_found(lambda: [1] if not agent._work.idle.is_set() else [], "a run")
            pid = agent.pid
            assert pid is not None
        assert not psutil.pid_exists(pid)
        assert told.all("lost") == []
        assert told.events("abort") == [{"reason": "shutdown"}]

    asyncio.run(scenario())
