"""`AgentEvents` that records every call in order and answers decisions by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.ports import (
    Answer,
    Conversation,
    DecisionCall,
    Doing,
    Interruption,
    Marker,
    Plan,
    Question,
    ToolCall,
    ToolVerdict,
    Verdict,
)

WAIT_S = 60.0  # an agent under test answers in milliseconds; a loaded machine gets the rest
SHOWN = 12  # calls quoted when something did not come

ACCEPTED = Verdict(True, "accepted")
OUTSIDE = Verdict(False, "there is no iteration to decide about")


class CheckFailedError(AssertionError):
    """What the adapter's author must mend."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """`emit`."""

    kind: str
    data: Mapping[str, Any]
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Did:
    """`doing`."""

    what: Doing


@dataclass(frozen=True, slots=True)
class Settled:
    """`settled`."""

    aborted: bool


@dataclass(frozen=True, slots=True)
class Busy:
    """`busy`."""


@dataclass(frozen=True, slots=True)
class Decided:
    """`decide`, and the verdict given."""

    call: DecisionCall
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Held:
    """`tool_call`, before it was answered."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Interrupted:
    """`interrupted`."""

    turn: Interruption


@dataclass(frozen=True, slots=True)
class Asked:
    """`ask`."""

    question: Question


@dataclass(frozen=True, slots=True)
class AskOver:
    """`ask_over`."""

    question_id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Forking:
    """`forking`."""

    what: str


@dataclass(frozen=True, slots=True)
class Branched:
    """`branch`."""

    marker: Marker | None


@dataclass(frozen=True, slots=True)
class Moved:
    """`moved`."""

    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Typed:
    """`command`."""

    line: str


@dataclass(frozen=True, slots=True)
class Left:
    """`left`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """`lost`."""

    reason: str


Recorded = (
    Emitted
    | Did
    | Settled
    | Busy
    | Decided
    | Held
    | Interrupted
    | Asked
    | AskOver
    | Forking
    | Branched
    | Moved
    | Typed
    | Left
    | Lost
)


def in_iteration_only(call: DecisionCall) -> Verdict:
    """The usual policy: accepted with a stamp, refused without."""
    return OUTSIDE if call.stamp is None else ACCEPTED


def allow(_: ToolCall) -> ToolVerdict:
    """No rule stands against the call."""
    return ToolVerdict()


class RecordingEvents:
    """A fake supervisor. `policy` (for decisions) and `check` (for held tool calls) may be replaced at any time."""

    def __init__(self, policy: Callable[[DecisionCall], Verdict] = in_iteration_only) -> None:
        self.calls: list[Recorded] = []
        self.policy = policy
        self.check: Callable[[ToolCall], ToolVerdict] = allow
        self._changed = asyncio.Event()

    def emit(self, kind: str, data: Mapping[str, Any], *, agent_id: str | None = None) -> None:
        self._record(Emitted(kind, data, agent_id))

    def doing(self, what: Doing) -> None:
        self._record(Did(what))

    def settled(self, *, aborted: bool) -> None:
        self._record(Settled(aborted))

    def busy(self) -> None:
        self._record(Busy())

    async def decide(self, call: DecisionCall) -> Verdict:
        verdict = self.policy(call)
        self._record(Decided(call, verdict))
        return verdict

    async def tool_call(self, call: ToolCall) -> ToolVerdict:
        self._record(Held(call))
        return self.check(call)

    async def interrupted(self, turn: Interruption) -> Plan:
        """Recovery is off here."""
        self._record(Interrupted(turn))
        return Plan()

    def ask(self, question: Question) -> None:
        self._record(Asked(question))

    def ask_over(self, question_id: str, outcome: str) -> None:
        self._record(AskOver(question_id, outcome))

    async def forking(self, what: str) -> None:
        self._record(Forking(what))

    async def command(self, line: str) -> Answer:
        self._record(Typed(line))
        return Answer(False, "nobody carries out commands here")

    def left(self, reason: str) -> None:
        self._record(Left(reason))

    def branch(self, marker: Marker | None) -> None:
        self._record(Branched(marker))

    def moved(self, conversation: Conversation) -> None:
        self._record(Moved(conversation))

    def lost(self, reason: str) -> None:
        self._record(Lost(reason))

    def emitted(self, kind: str) -> list[Mapping[str, Any]]:
        """The data of all events of this kind, oldest first."""
        return [call.data for call in self.calls if isinstance(call, Emitted) and call.kind == kind]

    def settlements(self) -> list[bool]:
        """`aborted` of each `settled`, oldest first."""
        return [call.aborted for call in self.calls if isinstance(call, Settled)]

    def decisions(self) -> list[Decided]:
        """All decisions asked about, oldest first."""
        return [call for call in self.calls if isinstance(call, Decided)]

    def losses(self) -> list[str]:
        """The reason of each `lost`."""
        return [call.reason for call in self.calls if isinstance(call, Lost)]

    def now_doing(self) -> Doing:
        """What the agent said last that it was busy with."""
        return next((call.what for call in reversed(self.calls) if isinstance(call, Did)), Doing.NOTHING)

    async def wait_for(self, what: str, predicate: Callable[[], bool], within_s: float | None = None) -> None:
        """Until `predicate` holds after a call. CheckFailedError naming `what` and the last calls."""
        within_s = WAIT_S if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                while not predicate():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise CheckFailedError(f"{what} did not come within {within_s:g} s; {self.tail()}") from None

    async def more_than(self, seen: int) -> None:
        """Until there are more calls than `seen`."""
        await self.wait_for("another call", lambda: len(self.calls) > seen)

    def tail(self) -> str:
        """The last calls, for messages."""
        shown = "\n  ".join(str(call)[:300] for call in self.calls[-SHOWN:])
        return f"the last calls were:\n  {shown}" if shown else "nothing was called"

    def _record(self, call: Recorded) -> None:
        self.calls.append(call)
        self._changed.set()
