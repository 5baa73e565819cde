"""The place of the agent process: empty, or one agent that came up, with its link.

Whatever an adapter raises becomes an AgentUnableError or a line in the log: no agent can fail the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import psutil

from loopsup.core.model import AbortReason
from loopsup.errors import AgentUnableError, LoopsupError
from loopsup.ports import Adapter, Agent, AgentStarted, Handover, Launch, Marker, Prompt, Unknown
from loopsup.shell import leftover
from loopsup.shell.carrier import Carriers
from loopsup.shell.link import AgentLink
from loopsup.terminal.contract import Stage, Staged

START_TIMEOUT_S = 80.0  # a CLI that unpacks itself at its first start takes 15 s; less than a launcher waits
PROMPT_TIMEOUT_S = 60.0  # a hand-over takes milliseconds; the adapter has its own, shorter bound
CLOSE_TIMEOUT_S = 30.0  # the adapter's ladder takes ten seconds and a sweep
CALL_TIMEOUT_S = 5.0  # abort, answer, mark: one line written to the agent


class AgentSlot:
    """Starts, speaks to and ends one agent at a time."""

    def __init__(
        self, adapter: Adapter, launch: Callable[[], Launch], log: Callable[[str], None], carriers: Carriers
    ) -> None:
        self.agent = adapter.name
        self.capabilities = adapter.capabilities
        self.carriers = carriers
        self._adapter = adapter
        self._launch = launch
        self._log = log
        self._agent: Agent | None = None
        self._coming: Agent | None = None
        self._link: AgentLink | None = None
        self._peer: int | None = None  # the process of an agent that is not ours
        self._closed = False
        self._mark: str | None = None  # of all that the session's agents start
        self._cut_off: set[psutil.Process] = set()  # what ran below the agent at an abort
        self.watchers: set[Callable[[Stage | None], None]] = set()  # told when the agent's screen comes and goes
        self._endings: set[asyncio.Task[None]] = set()  # agents being ended: none may serve beside the next one

    @property
    def up(self) -> bool:
        return self._agent is not None

    @property
    def stage(self) -> Stage | None:
        """The screen of the agent that is up, where it has one; a peer has the person's own."""
        if self._agent is None or self._peer is not None or not self.capabilities.terminal:
            return None
        return cast("Staged", self._agent).stage

    @property
    def pid(self) -> int | None:
        """Of the agent that is up, or on its way."""
        agent = self._agent or self._coming
        return None if agent is None else agent.pid

    @property
    def peer(self) -> int | None:
        """The process below which everything is the agent's, also where it is not ours to end."""
        return self.pid or self._peer

    async def start(self, link: AgentLink) -> AgentStarted:
        """Bring an agent up. AgentUnableError in its own words; nothing of it is left then."""
        agent: Agent | None = None
        await self._ended()
        try:
            agent = self._coming = self._adapter.agent(self._prepared(), link)
            started = await asyncio.wait_for(agent.start(), START_TIMEOUT_S)
            if self._closed:
                raise AgentUnableError("the session is being closed")
        except BaseException as error:
            link.cut()
            self.carriers.void()
            if agent is not None:
                await self._ending(agent, set())
            if isinstance(error, TimeoutError):
                raise AgentUnableError(f"the agent was not ready within {START_TIMEOUT_S:g} s") from error
            if isinstance(error, Exception) and not isinstance(error, LoopsupError):
                raise AgentUnableError(f"the agent cannot be started: {error}") from error
            raise
        finally:
            self._coming = None
        self._agent, self._link, self._peer = agent, link, started.peer
        self._stage_changed(self.stage)
        return started

    def _prepared(self) -> Launch:
        launch = self._launch()
        if not launch.cwd.is_dir():  # each adapter would say it in other words, some only of a program
            raise AgentUnableError(f"the directory the agent works in is not there: {launch.cwd}")
        self._mark = launch.env.get(leftover.MARK)
        return launch if self.capabilities.native_tool else replace(launch, carrier=self.carriers.issue())

    async def prompt(self, prompt: Prompt) -> Handover:
        """Hand a prompt over; an adapter that fails or hangs leaves it unknown.

        Not in a task of its own: what the agent answers is known before anything it says afterwards.
        """
        assert self._agent is not None
        try:
            async with asyncio.timeout(PROMPT_TIMEOUT_S):
                return await self._agent.prompt(prompt)
        except TimeoutError:
            return Unknown(f"no answer within {PROMPT_TIMEOUT_S:g} s")
        except Exception as error:
            return Unknown(f"{type(error).__name__}: {error}")

    async def abort(self, reason: AbortReason) -> None:
        """Ask it to end its response. What the response was running and the agent does not end is ended with it."""
        if self._agent is not None:
            self._cut_off |= leftover.descendants(self.pid)
            await self._call("abort", self._agent.abort(reason))

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        if self._agent is not None:
            await self._call("answer", self._agent.answer(question_id, allow, text))

    async def mark(self, marker: Marker) -> None:
        """Mark the present branch, where the agent has branches."""
        if self._agent is not None and self.capabilities.branches:
            await self._call("mark", self._agent.mark(marker))

    async def announce(self, event: Mapping[str, Any]) -> None:
        """Show an attention event inside the agent, where it has a place for it."""
        if self._agent is not None:
            await self._call("announce", self._agent.announce(event))

    def _stage_changed(self, stage: Stage | None) -> None:
        for watcher in tuple(self.watchers):
            watcher(stage)

    def forget(self) -> None:
        """It ended by itself. What it left (tools it was running, its sockets) is cleaned up before the next one."""
        self.carriers.void()
        agent, self._agent, self._link = self._agent, None, None
        if agent is not None:
            self._stage_changed(None)
            self._end(agent)

    async def empty(self, *, for_good: bool = False) -> None:
        """End the agent, if there is one; nothing it says any more is heard. Also waits for one being ended."""
        self._closed = self._closed or for_good
        if self._link is not None:
            self._link.cut()
        self.forget()
        await self._ended()

    def _end(self, agent: Agent) -> None:
        cut_off, self._cut_off = self._cut_off, set()
        task = asyncio.get_running_loop().create_task(self._ending(agent, cut_off))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _ending(self, agent: Agent, cut_off: set[psutil.Process]) -> None:
        await _quietly(agent.close())
        if cut_off:  # a tool in a session of its own lost its parent at the abort: the agent's tree has it no more
            await _quietly(leftover.end_all(cut_off))
        if self._mark is not None:
            await _quietly(leftover.sweep(self._mark, self._log))

    async def _ended(self) -> None:
        while self._endings:
            await asyncio.wait(self._endings)

    async def _call(self, what: str, work: Awaitable[None]) -> None:
        """An agent that does not listen is the watch's business, not the caller's."""
        try:
            await asyncio.wait_for(work, CALL_TIMEOUT_S)
        except Exception as error:
            self._log(f"{what} failed in the adapter: {type(error).__name__}: {error}")


async def _quietly(closing: Awaitable[object]) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(closing, CLOSE_TIMEOUT_S)
