"""The suite itself: an adapter that breaks one promise is caught by the check of that promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import (
    AbortReason,
    Accepted,
    Agent,
    AgentEvents,
    AgentStarted,
    Capabilities,
    Conversation,
    DecisionCall,
    Doing,
    Handover,
    Launch,
    Origin,
    Prompt,
    Refused,
    Stamp,
    Verdict,
)
from loopsup.testing import conformance, recording
from loopsup.testing.recording import CheckFailedError
from tests.support.demo_harness import DemoHarness

pytestmark = pytest.mark.slow  # a real process for each mutant

CHECKS = {check.name: check for check in conformance.CHECKS}


class Relay:
    """Passes everything on to `inner`; mutants override one thing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class ForgetsTurnEnd(Relay):
    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        if kind != "assistant.turn_end":
            self.inner.emit(kind, data, **rest)


class ForgetsToolComplete(Relay):
    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        if kind != "tool.execution_complete":
            self.inner.emit(kind, data, **rest)


class ToolsAfterTheTurn(Relay):
    held: Mapping[str, Any] | None = None

    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        if kind == "tool.execution_complete":
            self.held = data
            return
        self.inner.emit(kind, data, **rest)
        if kind == "assistant.turn_end" and self.held is not None:
            self.inner.emit("tool.execution_complete", self.held)
            self.held = None


class OneTurnForAll(Relay):
    """Claims turn events and sends one pair a prompt."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.turns = 0

    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        self.turns += kind == "assistant.turn_start"
        if self.turns == 1:
            self.inner.emit(kind, data, **rest)


class UnknownKey(Relay):
    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        self.inner.emit(kind, {**data, "colour": "blue"}, **rest)


class NotJson(Relay):
    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        self.inner.emit(kind, {**data, "text": {1, 2}} if "text" in data else data, **rest)


class SaysIdleItself(Relay):
    def settled(self, *, aborted: bool) -> None:
        self.inner.emit("session.idle", {})
        self.inner.settled(aborted=aborted)


class SettlesTwice(Relay):
    def settled(self, *, aborted: bool) -> None:
        self.inner.settled(aborted=aborted)
        self.inner.settled(aborted=aborted)


class NeverAborted(Relay):
    def settled(self, *, aborted: bool) -> None:
        self.inner.settled(aborted=False)


class NeverNothing(Relay):
    def doing(self, what: Doing) -> None:
        if what is not Doing.NOTHING:
            self.inner.doing(what)


class NeverModel(Relay):
    def doing(self, what: Doing) -> None:
        if what is not Doing.MODEL:
            self.inner.doing(what)


class ForgetsTheStamp(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        return await self.inner.decide(dataclasses.replace(call, stamp=None))


class InventsAStamp(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        return await self.inner.decide(dataclasses.replace(call, stamp=Stamp("x", 1, 1)))


class DecidesTwice(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        await self.inner.decide(call)
        return await self.inner.decide(call)


class IgnoresRefusals(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        await self.inner.decide(call)
        return Verdict(True, "fine")


class WithholdsTheReason(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        return dataclasses.replace(await self.inner.decide(call), message="")


class GoesOnAfterAcceptance(Relay):
    async def decide(self, call: DecisionCall) -> Verdict:
        return dataclasses.replace(await self.inner.decide(call), accepted=False)


class SilentAbort(Relay):
    def emit(self, kind: str, data: Mapping[str, Any], **rest: Any) -> None:
        if kind != "abort":
            self.inner.emit(kind, data, **rest)


class LostWithoutWords(Relay):
    def lost(self, reason: str) -> None:
        self.inner.lost("it is gone")


class SettlesTheLost(Relay):
    def lost(self, reason: str) -> None:
        self.inner.settled(aborted=True)
        self.inner.lost(reason)


class LostTwice(Relay):
    def lost(self, reason: str) -> None:
        self.inner.lost(reason)
        self.inner.lost(reason)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (ForgetsTurnEnd, "pairs-its-turns"),
        (ForgetsTurnEnd, "tells-its-loss"),
        (ForgetsToolComplete, "pairs-its-turns"),
        (ToolsAfterTheTurn, "pairs-its-turns"),
        (OneTurnForAll, "pairs-its-turns"),
        (UnknownKey, "speaks-the-vocabulary"),
        (NotJson, "speaks-the-vocabulary"),
        (SaysIdleItself, "speaks-the-vocabulary"),
        (SettlesTwice, "settles-once"),
        (NeverNothing, "settles-once"),
        (NeverModel, "says-what-it-does"),
        (ForgetsTheStamp, "stamps-the-decision"),
        (DecidesTwice, "stamps-the-decision"),
        (DecidesTwice, "ends-a-mixed-batch-when-accepted"),
        (InventsAStamp, "decides-nothing-outside-an-iteration"),
        (IgnoresRefusals, "goes-on-after-a-refusal"),
        (WithholdsTheReason, "goes-on-after-a-refusal"),
        (GoesOnAfterAcceptance, "ends-the-turn-when-accepted"),
        (GoesOnAfterAcceptance, "ends-a-mixed-batch-when-accepted"),
        (NeverAborted, "aborts"),
        (SilentAbort, "aborts"),
        (LostWithoutWords, "tells-its-loss"),
        (SettlesTheLost, "tells-its-loss"),
        (LostTwice, "tells-its-loss"),
    ],
)
def test_a_wrong_report_is_caught(mutant: type[Relay], check: str, tmp_path: Path) -> None:
    class Adapter(Relay):
        def agent(self, launch: Launch, events: AgentEvents) -> Agent:
            return self.inner.agent(launch, mutant(events))

    assert_caught(Adapter, check, tmp_path)


class TrimsThePrompt(Relay):
    async def prompt(self, prompt: Prompt) -> Handover:
        return await self.inner.prompt(dataclasses.replace(prompt, text=prompt.text.rstrip()))


class RefusesWithoutBusy(Relay):
    async def prompt(self, prompt: Prompt) -> Handover:
        outcome = await self.inner.prompt(prompt)
        return outcome if isinstance(outcome, Accepted) else Refused("no")


class AlwaysAborts(Relay):
    def __init__(self, inner: Any, events: AgentEvents) -> None:
        super().__init__(inner)
        self.events = events

    async def abort(self, reason: AbortReason) -> None:
        self.events.emit("abort", {"reason": reason.value})
        await self.inner.abort(reason)


class AnnouncesToTheModel(Relay):
    async def announce(self, event: Mapping[str, Any]) -> None:
        await self.inner.prompt(Prompt(str(event), Origin.USER, "announcement"))


class ClosesLate(Relay):
    asked = 0

    async def close(self) -> None:
        self.asked += 1
        if self.asked > 1:
            await self.inner.close()


class Elsewhere(Relay):
    async def start(self) -> AgentStarted:
        started = await self.inner.start()
        return AgentStarted(dataclasses.replace(started.conversation, cwd=Path("/")))


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (TrimsThePrompt, "keeps-the-prompt-verbatim"),
        (RefusesWithoutBusy, "refuses-a-prompt-while-busy"),
        (AnnouncesToTheModel, "announces-without-telling-the-model"),
        (ClosesLate, "closes-without-a-survivor"),
        (Elsewhere, "starts-a-conversation"),
    ],
)
def test_a_wrong_deed_is_caught(mutant: type[Relay], check: str, tmp_path: Path) -> None:
    class Adapter(Relay):
        def agent(self, launch: Launch, events: AgentEvents) -> Any:
            return mutant(self.inner.agent(launch, events))

    assert_caught(Adapter, check, tmp_path)


class AbortsTheIdle(Relay):
    def agent(self, launch: Launch, events: AgentEvents) -> Any:
        return AlwaysAborts(self.inner.agent(launch, events), events)


class ForgetsTheEnvironment(Relay):
    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        return self.inner.agent(dataclasses.replace(launch, env={}), events)


class StartsAnew(Relay):
    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        return self.inner.agent(dataclasses.replace(launch, resume=None), events)


class IgnoresTheCommand(Relay):
    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        return self.inner.agent(dataclasses.replace(launch, command=None), events)


class MissesNothing(Relay):
    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        return None


class FindsEverything(Relay):
    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        return Conversation(ref, None, cwd)


class BadName(Relay):
    name = "My Agent"


class Contradicts(Relay):
    capabilities = Capabilities(terminate_on_tool=True)


class ClaimsPermissions(Relay):
    capabilities = Capabilities(permissions=True, native_tool=True, abort=True)


class HidesItsTool(Relay):
    capabilities = Capabilities()


class ClaimsNoResume(Relay):
    capabilities = Capabilities(abort=True, native_tool=True)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (AbortsTheIdle, "ignores-an-abort-when-idle"),
        (ForgetsTheEnvironment, "runs-as-a-process-of-its-own"),
        (StartsAnew, "resumes"),
        (IgnoresTheCommand, "fails-to-start-in-words"),
        (MissesNothing, "names-a-missing-command"),
        (FindsEverything, "does-not-find-a-foreign-conversation"),
        (BadName, "speaks-the-protocol"),
        (Contradicts, "declares-consistently"),
        (ClaimsPermissions, "asks-before-tools"),
        (HidesItsTool, "stamps-the-decision"),
        (ClaimsNoResume, "resumes"),
    ],
)
def test_a_wrong_declaration_is_caught(mutant: type[Relay], check: str, tmp_path: Path) -> None:
    assert_caught(mutant, check, tmp_path)


def test_every_check_has_a_name_and_says_why() -> None:
    assert len(CHECKS) == len(conformance.CHECKS)
    assert [name for name, check in CHECKS.items() if not check.why.strip()] == []


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a mutant never does need not be waited for as long as what a busy machine does late."""
    monkeypatch.setattr(recording, "WAIT_S", 20.0)


def assert_caught(adapter: type[Relay], check: str, tmp_path: Path) -> None:
    harness = DemoHarness(tmp_path)
    harness.adapter = adapter(harness.adapter)  # type: ignore[assignment]
    with pytest.raises(CheckFailedError) as caught:
        conformance.run(CHECKS[check], harness)
    assert str(caught.value)
