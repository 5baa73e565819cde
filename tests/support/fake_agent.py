"""An agent of `loopsup.ports` without a process, scripted prompt by prompt, in whatever way an agent can misbehave.

An `Act` is what the agent does with one prompt: a coroutine function that gets the agent and the prompt and returns
its answer to the hand-over. Work that outlives the answer goes through `agent.work(...)`, which an abort or a
close cancels.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loopsup.core.model import Stamp
from loopsup.ports import (
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    Capabilities,
    Conversation,
    DecisionCall,
    Doing,
    Handover,
    Launch,
    Marker,
    Origin,
    Prompt,
    Refused,
    Unknown,
    Verdict,
)
from tests.support.script import call

Act = Callable[["FakeAgent", Prompt], Awaitable[Handover]]
Start = Callable[["FakeAgent"], Awaitable[None]]
ALL = Capabilities(
    abort=True, native_tool=True, terminate_on_tool=True, turn_events=True, resume=True, permissions=True
)


@dataclass
class FakeAdapter:
    """Makes agents. `acts` and `starts` are used up one by one; then `default` and an immediate start serve."""

    acts: deque[Act] = field(default_factory=deque)
    starts: deque[Start] = field(default_factory=deque)
    default: Act | None = None
    capabilities: Capabilities = ALL
    deaf: bool = False
    prompts: list[Prompt] = field(default_factory=list)
    agents: list[FakeAgent] = field(default_factory=list)
    name: str = "fake"
    summary: str = "an agent for tests"

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        return None

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        pass

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        return Conversation(ref, None, cwd)

    def agent(self, launch: Launch, events: AgentEvents) -> FakeAgent:
        agent = FakeAgent(self, launch, events)
        self.agents.append(agent)
        return agent

    @property
    def newest(self) -> FakeAgent:
        return self.agents[-1]

    def texts(self, *origins: Origin) -> list[str]:
        """What was handed over, the loop's own prompts by their first line."""
        return [p.text.split("\n")[0] for p in self.prompts if not origins or p.origin in origins]


class FakeAgent:
    """One agent process that is none."""

    def __init__(self, adapter: FakeAdapter, launch: Launch, events: AgentEvents) -> None:
        self.adapter = adapter
        self.launch = launch
        self.events = events
        self.aborts: list[AbortReason] = []
        self.answers: list[tuple[str, bool, str]] = []
        self.marks: list[Marker] = []
        self.announced: list[str] = []
        self.verdicts: list[Verdict] = []
        self.closed = 0
        self.turn: str | None = None
        self.turns = 0
        self.at_work = False
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- Agent --------------------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        if self.adapter.starts:
            await self.adapter.starts.popleft()(self)
        return AgentStarted(Conversation(self.launch.session_id, None, self.launch.cwd))

    async def prompt(self, prompt: Prompt) -> Handover:
        self.adapter.prompts.append(prompt)
        act = self.adapter.acts.popleft() if self.adapter.acts else self.adapter.default
        assert act is not None, f"nothing is scripted for {prompt}"
        return await act(self, prompt)

    async def abort(self, reason: AbortReason) -> None:
        self.aborts.append(reason)
        if self.adapter.deaf or not self.at_work:
            return
        await self._stop_work()
        self.events.emit("abort", {"reason": reason.value})
        self.end_turn("aborted")
        self.settle(aborted=True)

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        self.answers.append((question_id, allow, text))

    async def mark(self, marker: Marker) -> None:
        self.marks.append(marker)

    async def announce(self, event: Mapping[str, Any]) -> None:
        self.announced.append(str(event["status"]))

    async def close(self) -> None:
        self.closed += 1
        await self._stop_work()

    @property
    def pid(self) -> int | None:
        return None

    # ---- what acts are made of ----------------------------------------------------------------------

    def work(self, job: Coroutine[Any, Any, None]) -> None:
        """Go on after the hand-over was answered."""
        self.at_work = True
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_work(self) -> None:
        mine = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine)

    def begin_turn(self) -> None:
        self.turns += 1
        self.turn = f"t{self.turns}"
        self.events.doing(Doing.MODEL)
        self.events.emit("assistant.turn_start", {"turnId": self.turn})

    def end_turn(self, reason: str = "stop", text: str = "", error: str | None = None) -> None:
        if self.turn is None:
            return
        if text:
            self.events.emit("assistant.message", {"turnId": self.turn, "text": text, "toolRequests": []})
        told = {} if error is None else {"error": {"kind": "provider", "message": error}}
        self.events.emit("assistant.turn_end", {"turnId": self.turn, "stopReason": reason, **told})
        self.events.doing(Doing.NOTHING)
        self.turn = None

    def settle(self, *, aborted: bool = False) -> None:
        self.at_work = False
        self.events.settled(aborted=aborted)

    async def decide(self, stamp: Stamp | None, arguments: object) -> Verdict:
        verdict = await self.events.decide(DecisionCall(stamp, arguments))
        self.verdicts.append(verdict)
        return verdict

    def die(self, reason: str = "signal 9 (SIGKILL)") -> None:
        self.at_work = False
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        self.events.lost(reason)


# ---- acts -------------------------------------------------------------------------------------------


def says(verb: str, delay: str | None = None, *, lasts_s: float = 0, text: str = "done") -> Act:
    """One turn that decides (a user's message is only answered)."""
    return lambda agent, prompt: _accept(agent, _turn(agent, prompt, (call(verb, delay),), lasts_s, text))


def talks(text: str = "hello", *, lasts_s: float = 0) -> Act:
    """One turn without a decision."""
    return lambda agent, prompt: _accept(agent, _turn(agent, prompt, (), lasts_s, text))


def tries(*calls: object) -> Act:
    """One turn that makes these calls of loop_control."""
    return lambda agent, prompt: _accept(agent, _turn(agent, prompt, calls, 0, ""))


def does(job: Callable[[FakeAgent, Prompt], Coroutine[Any, Any, None]]) -> Act:
    """Accepts, then does `job`."""
    return lambda agent, prompt: _accept(agent, job(agent, prompt))


def hangs(what: Doing = Doing.MODEL, *, verb: str | None = None) -> Act:
    """Starts a turn, decides where a verb is given, and stays `what` until it is aborted."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        if verb is not None:
            await agent.decide(prompt.stamp, call(verb))
        agent.events.doing(what)
        await asyncio.Event().wait()

    return does(job)


def refuses(reason: str = "the pipe is closed", *, busy: bool = False) -> Act:
    return _answers(Refused(reason, busy))


def shrugs(reason: str = "the pipe broke") -> Act:
    return _answers(Unknown(reason))


def late(act: Act, seconds: float) -> Act:
    """Does `act`, and answers the hand-over only later."""

    async def answer(agent: FakeAgent, prompt: Prompt) -> Handover:
        result = await act(agent, prompt)
        await asyncio.sleep(seconds)
        return result

    return answer


def never(act: Act | None = None) -> Act:
    """Does `act`, and never answers the hand-over."""

    async def answer(agent: FakeAgent, prompt: Prompt) -> Handover:
        if act is not None:
            await act(agent, prompt)
        await asyncio.Event().wait()
        raise AssertionError

    return answer


def raises(error: Exception) -> Act:
    async def answer(agent: FakeAgent, prompt: Prompt) -> Handover:
        raise error

    return answer


def errs(error: str = "429 slow down") -> Act:
    """A request that fails; nothing more comes of it."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.end_turn("error", error=error)
        agent.settle()

    return does(job)


def settles() -> Act:
    """Not even a request."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.settle()

    return does(job)


def dies(reason: str = "signal 9 (SIGKILL)", *, after_s: float = 0, turn: bool = True) -> Act:
    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        if turn:
            agent.begin_turn()
        await asyncio.sleep(after_s)
        agent.die(reason)

    return does(job)


def start_fails(error: BaseException) -> Start:
    async def start(agent: FakeAgent) -> None:
        raise error

    return start


def start_takes(seconds: float | None) -> Start:
    """None: for ever."""

    async def start(agent: FakeAgent) -> None:
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(seconds)

    return start


def without(**capabilities: bool) -> Capabilities:
    return replace(ALL, **capabilities)


def _answers(result: Handover) -> Act:
    async def answer(agent: FakeAgent, prompt: Prompt) -> Handover:
        return result

    return answer


async def _accept(agent: FakeAgent, job: Coroutine[Any, Any, None]) -> Handover:
    agent.work(job)
    return Accepted()


async def _turn(agent: FakeAgent, prompt: Prompt, calls: tuple[object, ...], lasts_s: float, text: str) -> None:
    agent.begin_turn()
    if lasts_s:
        await asyncio.sleep(lasts_s)
    if prompt.stamp is not None:
        for arguments in calls:
            await agent.decide(prompt.stamp, arguments)
    agent.end_turn(text=text)
    agent.settle()
