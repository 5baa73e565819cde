"""A Pi that is driven through its extension alone, with a fake extension at the other end of the socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import (
    AbortReason,
    Accepted,
    AgentStarted,
    AgentUnableError,
    Conversation,
    DecisionCall,
    Doing,
    Launch,
    Marker,
    Origin,
    Permissions,
    Prompt,
    Refused,
    Stamp,
    Unknown,
)
from loopsup.testing.recording import ACCEPTED, Busy, Decided, Did, Emitted, Left, RecordingEvents, Settled, Typed
from loopsup_pi.linked import Guest, LinkedPi

SCENARIO_S = 100.0
STAMP = Stamp("loop", 1, 1)
PROMPT = Prompt("[loop iteration]\nlook", Origin.LOOP, "m1", STAMP)
DECISION = {"decision": "complete", "summary": "s", "evidence": "e"}


class Pi:
    """The extension inside a Pi, by hand."""

    def __init__(self, setup: dict[str, Any], cwd: Path) -> None:
        self.setup = setup
        self.cwd = cwd

    async def connect(self, **changes: Any) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(self.setup["socket"])
        file = str(self.cwd / "s.jsonl")
        hello = {"type": "hello", "token": self.setup["token"], "sessionId": "pi-1", "file": file, "pid": 4242}
        await self.say(**{**hello, "cwd": str(self.cwd), "tool": True, "marker": None, "newest": None, **changes})

    async def say(self, **record: Any) -> None:
        self.writer.write(json.dumps(record).encode() + b"\n")
        await self.writer.drain()

    async def event(self, kind: str, **fields: Any) -> None:
        await self.say(type="event", event={"type": kind, **fields})

    async def hear(self) -> Any:
        line = await asyncio.wait_for(self.reader.readline(), SCENARIO_S)
        return json.loads(line) if line else None

    async def take(self, taken: bool | None = True, **more: Any) -> str:
        """Answer the prompt that comes; its text."""
        record = await self.hear()
        assert record["type"] == "prompt"
        await self.say(type="taken", prompt=record["prompt"], taken=taken, **more)
        return str(record["text"])

    async def ask(self, **record: Any) -> Any:
        await self.say(id=7, **record)
        return await self.hear()

    async def go(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Case:
    def __init__(self, agent: LinkedPi, pi: Pi, told: RecordingEvents, started: AgentStarted) -> None:
        self.agent, self.pi, self.told, self.started = agent, pi, told, started

    async def until(self, call: object) -> None:
        await asyncio.wait_for(self._until(call), SCENARIO_S)

    async def _until(self, call: object) -> None:
        while call not in self.told.calls:
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(root: Path, **launched: Any) -> AsyncIterator[Case]:
    told = RecordingEvents()
    invited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    values: dict[str, Any] = {
        "session_id": "s1",
        "resume": None,
        "cwd": root,
        "command": None,
        "args": (),
        "env": {"LOOPSUP_SESSION": "work"},
        "state_dir": root,
        "run_dir": root,
        "permissions": Permissions(deny=("bash",)),
        "log": lambda line: None,
        **launched,
    }
    agent = LinkedPi(Launch(**values), told, Guest(invited.set_result))
    starting = asyncio.ensure_future(agent.start())
    pi = Pi(json.loads(await invited), root)
    await pi.connect()
    try:
        yield Case(agent, pi, told, await starting)
    finally:
        await agent.close()
        await pi.go()


def drive(root: Path, scenario: Callable[[Case], Awaitable[None]], **launched: Any) -> None:
    async def run() -> None:
        async with running(root, **launched) as case:
            await scenario(case)

    asyncio.run(asyncio.wait_for(run(), SCENARIO_S))


def test_it_comes_up_when_the_invited_pi_says_hello(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        assert it.started == AgentStarted(Conversation("pi-1", tmp_path / "s.jsonl", tmp_path), peer=4242)
        assert it.agent.pid is None
        assert it.pi.setup["session"] == "work"
        assert it.pi.setup["permissions"] == {"mode": "ask", "allow": [], "deny": ["bash"]}

    drive(tmp_path, scenario)


def test_a_prompt_a_decision_and_its_settlement(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        prompting = asyncio.ensure_future(it.agent.prompt(PROMPT))
        assert await it.pi.take() == PROMPT.text
        await it.pi.event("agent_start")
        await it.pi.event("message_start", message={"role": "user", "text": PROMPT.text})
        await it.pi.event("extension_ui_request", statusKey="loopsup", statusText="request")
        verdict = await it.pi.ask(type="decide", call="c1", arguments=DECISION)
        assert verdict == {"type": "answer", "id": 7, "accepted": True, "message": "accepted"}
        message = {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "stopReason": "toolUse"}
        await it.pi.event("message_end", message=message)
        await it.pi.event("turn_end")
        await it.pi.event("agent_settled", aborted=False)
        assert await prompting == Accepted()
        await it.until(Settled(False))
        assert Decided(DecisionCall(STAMP, DECISION), ACCEPTED) in it.told.calls
        assert [call for call in it.told.calls if not isinstance(call, Decided)] == [
            Emitted("assistant.turn_start", {"turnId": "0"}),
            Did(Doing.MODEL),
            Emitted("assistant.message", {"turnId": "0", "text": "Done.", "toolRequests": []}),
            Did(Doing.NOTHING),
            Emitted("assistant.turn_end", {"turnId": "0", "stopReason": "toolUse"}),
            Settled(False),
        ]

    drive(tmp_path, scenario)


def test_what_the_person_types_is_a_users_message_without_a_stamp(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        await it.pi.event("agent_start")
        await it.pi.event("message_start", message={"role": "user", "text": "hello"})
        await it.until(Busy())
        await it.pi.ask(type="decide", call="c1", arguments=DECISION)
        await it.pi.event("agent_settled", aborted=True)
        await it.until(Settled(True))
        said = [call for call in it.told.calls if isinstance(call, Emitted) and call.kind == "user.message"]
        assert [(call.data["origin"], call.data["text"]) for call in said] == [("user", "hello")]
        assert [call.call.stamp for call in it.told.calls if isinstance(call, Decided)] == [None]
        assert Emitted("abort", {"reason": "user"}) in it.told.calls

    drive(tmp_path, scenario)


@pytest.mark.parametrize(
    ("taken", "more", "expected"),
    [
        (False, {"reason": "pi is working", "busy": True}, Refused("pi is working", busy=True)),
        (False, {"reason": "no model", "busy": False}, Refused("no model")),
        (None, {"reason": "pi did not begin with the message"}, Unknown("pi did not begin with the message")),
    ],
)
def test_a_prompt_that_is_not_taken(tmp_path: Path, taken: bool | None, more: Any, expected: object) -> None:
    async def scenario(it: Case) -> None:
        prompting = asyncio.ensure_future(it.agent.prompt(PROMPT))
        await it.pi.take(taken, **more)
        assert await prompting == expected

    drive(tmp_path, scenario)


def test_pi_goes_away_while_a_prompt_is_on_its_way(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        prompting = asyncio.ensure_future(it.agent.prompt(PROMPT))
        await it.pi.hear()
        await it.pi.go()
        assert await prompting == Unknown("Pi ended")
        await it.until(Left("Pi ended"))
        assert await it.agent.prompt(PROMPT) == Refused("pi is not connected", busy=True)

    drive(tmp_path, scenario)


def test_an_abort_is_asked_for_and_settles(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        await it.agent.abort(AbortReason.USER)  # idle: nothing happens
        await it.pi.event("agent_start")
        await it.until(Busy())
        await it.agent.abort(AbortReason.WATCHDOG)
        assert await it.pi.hear() == {"type": "abort"}
        await it.pi.event("agent_settled", aborted=True)
        await it.until(Settled(True))
        assert [call for call in it.told.calls if isinstance(call, Emitted)] == [
            Emitted("abort", {"reason": "watchdog"})
        ]

    drive(tmp_path, scenario)


def test_an_abort_of_a_pi_that_is_gone_settles_by_itself(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        await it.pi.event("agent_start")
        await it.until(Busy())
        await it.pi.go()
        await it.until(Left("Pi ended"))
        await it.agent.abort(AbortReason.SHUTDOWN)
        assert it.told.calls[-1] == Settled(True)

    drive(tmp_path, scenario)


def test_a_persons_command_goes_to_the_supervisor(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        answer = await it.pi.ask(type="command", line="pause")
        said = "nobody carries out commands here"
        assert answer == {"type": "answer", "id": 7, "done": False, "message": said, "status": None}
        assert it.told.calls == [Typed("pause")]

    drive(tmp_path, scenario)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("quit", "Pi was quit"),
        ("new", "Pi went to a new conversation"),
        ("fork", "Pi went to a fork of the conversation"),
    ],
)
def test_a_goodbye_is_a_leave_taking_told_once(tmp_path: Path, reason: str, told: str) -> None:
    async def scenario(it: Case) -> None:
        await it.pi.say(type="goodbye", reason=reason)
        await it.pi.go()
        await it.until(Left(told))
        assert it.told.calls == [Left(told)]

    drive(tmp_path, scenario)


@pytest.mark.slow  # some seconds of real time pass before a lost connection counts
def test_a_reload_comes_back_on_a_new_connection(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        await it.pi.say(type="goodbye", reason="reload")
        await it.pi.go()
        await it.pi.connect(reason="reload")
        await it.pi.event("agent_start")
        await it.until(Busy())
        assert it.told.calls == [Busy()]

    drive(tmp_path, scenario)


def test_the_end_lets_pi_go_and_markers_reach_it(tmp_path: Path) -> None:
    async def scenario(it: Case) -> None:
        marking = asyncio.ensure_future(it.agent.mark(Marker("loop", 3)))
        record = await it.pi.hear()
        assert (record["type"], record["entry"], record["data"]) == (
            "append",
            "loopsup",
            {"v": 1, "loopId": "loop", "seq": 3},
        )
        await it.pi.say(type="appended", id=record["id"])
        await marking
        await it.agent.close()
        assert await it.pi.hear() == {"type": "released"}
        assert await it.pi.hear() is None
        assert it.told.calls == []

    drive(tmp_path, scenario)


def test_another_conversation_than_the_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentUnableError) as caught:
        drive(tmp_path, lambda it: asyncio.sleep(0), resume=Conversation("other", None, tmp_path))
    assert "another conversation" in str(caught.value)


def test_a_pi_that_never_comes(tmp_path: Path) -> None:
    async def run() -> None:
        values = {"args": (), "env": {}, "permissions": Permissions(), "log": lambda line: None}
        launch = Launch("s1", None, tmp_path, None, state_dir=tmp_path, run_dir=tmp_path, **values)  # type: ignore[arg-type]
        agent = LinkedPi(launch, RecordingEvents(), Guest(lambda setup: None), start_s=0.01)
        try:
            await agent.start()
        finally:
            await agent.close()

    with pytest.raises(AgentUnableError) as caught:
        asyncio.run(run())
    assert "did not connect within 0.01 s" in str(caught.value)
