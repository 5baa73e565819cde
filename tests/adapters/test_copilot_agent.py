"""The Copilot agent before a server that is played: orders and answers the real one gives only by chance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopsup.ports import AbortReason, Accepted, Launch, Permissions, Prompt, Refused, Stamp, Unknown
from loopsup.wire import events as ev
from loopsup_copilot import agent as module
from loopsup_copilot.agent import CopilotAgent
from loopsup_copilot.diagnostics import LOGGED_LINES, Diagnostics
from loopsup_copilot.server import Server
from tests.support.agent_env import said, stamped
from tests.support.recording import Recording

STAMP = Stamp("loop", 1, 1)


class NoError(Exception):
    """What the played server says no with."""


class Played:
    """A session of the SDK. `answer`: what `send` does."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.aborts = 0
        self.notes: list[tuple[str, str | None]] = []
        self.answer: Callable[[], Awaitable[str]] | None = None

    async def send(self, text: str, agent_mode: str) -> str:
        self.sent.append((agent_mode, text))
        return "id" if self.answer is None else await self.answer()

    async def abort(self) -> None:
        self.aborts += 1

    async def log(self, words: str, level: str | None = None) -> None:
        self.notes.append((words, level))


class Stage:
    """An agent that is up, without a process."""

    def __init__(self, tmp: Path, monkeypatch: pytest.MonkeyPatch, handover_s: float = 5) -> None:
        monkeypatch.setattr(Server, "pid", property(lambda _: 4711))
        monkeypatch.setattr(module.sdk, "is_refusal", lambda error: isinstance(error, NoError))
        self.log: list[str] = []
        self.told = Recording()
        launch = Launch("s", None, tmp, None, (), {}, tmp, tmp, Permissions(), self.log.append)
        self.agent = CopilotAgent(launch, self.told, handover_s=handover_s)
        self.session = Played()
        self.agent._session = self.session

    def hear(self, *kinds: str, **data: Any) -> None:
        """Events of the session, each with these data."""
        for kind in kinds:
            record = {"type": kind, "data": data}
            self.agent._on_event(SimpleNamespace(type=SimpleNamespace(value=kind), to_dict=lambda r=record: r))

    def turn(self) -> None:
        self.hear("assistant.turn_start", "model.call_start", "assistant.turn_end")

    async def stamp(self) -> Any:
        """The stamp a decision would carry now."""
        await self.agent._decide({"decision": "continue"}, None)
        return self.told.all("decide")[-1].stamp


def play(tmp: Path, patch: pytest.MonkeyPatch, act: Callable[[Stage], Awaitable[None]], **how: Any) -> None:
    async def go() -> None:
        await act(Stage(tmp, patch, **how))

    asyncio.run(go())


def test_a_prompt_behind_a_run_of_copilots_own_is_settled_by_its_own_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both set out at the same moment: Copilot's run comes first, decides nothing, and settles nothing."""

    async def act(it: Stage) -> None:
        assert await it.agent.prompt(stamped()) == Accepted()
        it.turn()
        assert await it.stamp() is None
        it.hear("assistant.idle")
        assert it.told.all("settled") == []
        assert it.told.all("busy") == []
        it.hear("user.message")
        it.turn()
        assert await it.stamp() == STAMP
        it.hear("assistant.idle")
        assert it.told.all("settled") == [False]

    play(tmp_path, monkeypatch, act)


def test_a_prompt_that_copilot_takes_into_its_own_run_is_settled_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(it: Stage) -> None:
        await it.agent.prompt(stamped())
        it.turn()
        it.hear("user.message")
        it.turn()
        it.hear("assistant.idle")
        assert it.told.all("settled") == [False]

    play(tmp_path, monkeypatch, act)


def test_a_prompt_that_fails_before_it_begins_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        await it.agent.prompt(stamped())
        it.hear("session.error", errorType="query", message="No GitHub OAuth token")
        it.hear("assistant.idle")
        assert it.told.all("settled") == [False]
        assert it.told.events(ev.SESSION_ERROR) == [{"kind": "auth", "message": "No GitHub OAuth token"}]

    play(tmp_path, monkeypatch, act)


def test_a_run_of_its_own_is_told_once_and_refuses_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        it.turn()
        it.turn()
        assert it.told.all("busy") == [None]
        assert await it.agent.prompt(stamped()) == Refused("copilot is working", busy=True)
        assert it.session.sent == []
        it.hear("assistant.idle")
        assert it.told.all("settled") == [False]
        it.hear("assistant.idle")  # of an abort of nothing
        assert it.told.all("settled") == [False]
        assert await it.agent.prompt(stamped()) == Accepted()

    play(tmp_path, monkeypatch, act)


def test_an_abort_settles_a_prompt_that_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        await it.agent.prompt(stamped())
        it.turn()
        await it.agent.abort(AbortReason.USER)
        it.hear("assistant.idle", aborted=True)
        assert it.told.all("settled") == [True]
        assert it.told.events(ev.ABORT) == [{"reason": "user"}]
        await it.agent.abort(AbortReason.USER)
        assert it.session.aborts == 1

    play(tmp_path, monkeypatch, act)


def test_an_abort_from_elsewhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        await it.agent.prompt(stamped())
        it.hear("user.message", "abort")
        it.hear("assistant.idle", aborted=True)
        assert it.told.events(ev.ABORT) == [{"reason": "user"}]

    play(tmp_path, monkeypatch, act)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NoError("session is gone"), Refused("session is gone")),
        (RuntimeError("broken pipe"), Unknown("RuntimeError: broken pipe")),
        (TimeoutError(), Unknown("copilot did not answer within 0.05 s")),
    ],
)
def test_what_becomes_of_a_prompt_is_said_honestly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: Any
) -> None:
    async def act(it: Stage) -> None:
        async def answer() -> str:
            if isinstance(error, TimeoutError):
                await asyncio.Event().wait()
            raise error

        it.session.answer = answer
        assert await it.agent.prompt(stamped()) == outcome
        it.session.answer = None
        again = await it.agent.prompt(said("again"))
        assert isinstance(again, Accepted if isinstance(outcome, Refused) else Refused)

    play(tmp_path, monkeypatch, act, handover_s=0.05)


def test_a_user_turn_carries_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        for prompt, stamp in ((stamped(), STAMP), (said("hello"), None)):
            await it.agent.prompt(prompt)
            it.hear("user.message")
            assert await it.stamp() == stamp
            it.hear("assistant.idle")
            assert await it.stamp() is None

    play(tmp_path, monkeypatch, act)


def test_a_background_agent_that_asks_after_the_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(it: Stage) -> None:
        answers: list[tuple[str, bool]] = []

        async def answer(_session: Any, identity: str, allow: bool, _words: str) -> None:
            answers.append((identity, allow))

        monkeypatch.setattr(module.sdk, "answer_permission", answer)
        await it.agent.prompt(stamped())
        it.hear("user.message")
        it.hear("permission.requested", requestId="r1", permissionRequest={"kind": "shell", "fullCommandText": "x"})
        it.hear("permission.requested", requestId="r2", resolvedByHook=True, permissionRequest={"kind": "shell"})
        assert [asked.id for asked in it.told.all("ask")] == ["r1"]
        it.hear("assistant.idle")
        await it.told.until("ask_over")
        await asyncio.sleep(0)
        assert answers == [("r1", False)]

    play(tmp_path, monkeypatch, act)


def test_an_attention_event_is_a_note_in_copilots_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(it: Stage) -> None:
        await it.agent.announce({"status": "blocked", "summary": "needs a key"})
        assert it.session.notes == [("loop blocked: needs a key", "warning")]

    play(tmp_path, monkeypatch, act)


def test_diagnostics_are_bounded_and_explain(capfd: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    diagnostics = Diagnostics(log.append)
    diagnostics.open()
    try:
        for number in range(LOGGED_LINES + 50):
            logging.getLogger("copilot._jsonrpc").warning("[CLI] line %d", number)
    finally:
        diagnostics.shut()
    logging.getLogger("copilot").warning("nobody hears this")
    assert capfd.readouterr() == ("", "")
    assert len(log) == LOGGED_LINES
    assert log[0] == "copilot: line 0"
    assert log[-1] == "copilot: (its further diagnostics are left out)"
    assert diagnostics.explain("it ended").startswith("it ended; line 242 / line 243")


def test_prompts_of_the_loop_and_of_a_person_are_sent_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(it: Stage) -> None:
        prompt = Prompt("  /help \n", stamped().origin, "m", STAMP)
        await it.agent.prompt(prompt)
        it.hear("user.message", "assistant.idle")
        await it.agent.prompt(Prompt("work", prompt.origin, "m2", autopilot=True))
        assert it.session.sent == [("interactive", "  /help \n"), ("autopilot", "work")]

    play(tmp_path, monkeypatch, act)
