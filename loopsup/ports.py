"""What an agent adapter is: the only page an adapter author needs.

An adapter turns one agent's way of being driven into a few verbs (`Agent`) and one event vocabulary
(`loopsup.wire.events`), and says honestly what it can do (`Capabilities`). It is registered as an entry
point in the group `loopsup.adapters` whose object is a callable without arguments returning an `Adapter`.
`loopsup.testing` has the conformance suite every adapter must pass.

Everything here runs in one asyncio event loop: the supervisor calls the adapter, the adapter calls the
`AgentEvents` it was given, both on that loop's thread. An adapter never blocks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from loopsup.core.classify import Boundary, Interruption
from loopsup.core.continuity import Plan
from loopsup.core.model import AbortReason, Stamp
from loopsup.errors import AgentUnableError, NotFoundError, RefusedError
from loopsup.ports_values import (
    HOLD_S,
    Accepted,
    AgentStarted,
    Answer,
    Broken,
    Capabilities,
    Carrier,
    Conversation,
    DecisionCall,
    Doing,
    Handover,
    Launch,
    Marker,
    Origin,
    Permissions,
    Prompt,
    Question,
    Refused,
    ToolCall,
    ToolVerdict,
    Unknown,
    Verdict,
)

__all__ = [
    "HOLD_S",
    "AbortReason",
    "Accepted",
    "Adapter",
    "Agent",
    "AgentEvents",
    "AgentStarted",
    "AgentUnableError",
    "Answer",
    "Boundary",
    "Broken",
    "Capabilities",
    "Carrier",
    "Conversation",
    "DecisionCall",
    "Doing",
    "Handover",
    "Interruption",
    "Launch",
    "Marker",
    "NotFoundError",
    "Origin",
    "Permissions",
    "Plan",
    "Prompt",
    "Question",
    "Refused",
    "RefusedError",
    "Stamp",
    "ToolCall",
    "ToolVerdict",
    "Unknown",
    "Verdict",
]


class AgentEvents(Protocol):
    """What an adapter tells the supervisor."""

    def emit(self, kind: str, data: Mapping[str, Any], *, agent_id: str | None = None) -> None:
        """One event of the vocabulary (`wire.events.TYPES`). `agent_id`: a sub-agent's, never decisive.

        Not for `session.idle` (say `settled`), `user.message` of a prompt the supervisor handed over (it
        writes that itself), `permission.*` (say `ask`), `loop.*`.
        """

    def doing(self, what: Doing) -> None:
        """What the agent is busy with from now on."""

    def settled(self, *, aborted: bool) -> None:
        """No automatic work of any kind is left. Exactly once for each accepted prompt or self-started run."""

    def busy(self) -> None:
        """The agent started to work by itself (not after a prompt of ours). `settled` will follow."""

    async def decide(self, call: DecisionCall) -> Verdict:
        """Ask for the verdict on a `loop_control` call. Answers within 5 s; raises nothing."""
        ...

    async def tool_call(self, call: ToolCall) -> ToolVerdict:
        """Whether this tool may run (only with `Launch.hold_tools`); raises nothing.

        Everything the model streamed before the call has been told first. Without an answer within `HOLD_S` the call
        is denied, with a reason. `loop_control` is not asked about: its verdict comes from `decide`.
        """
        ...

    async def interrupted(self, turn: Interruption) -> Plan:
        """What to do with a turn that ended short (capabilities `rewind` and `continue_without_message`).

        Asked at the end of a turn with an error or at the output cap, before any retry of the agent's own; and
        with the last turn of a run before it settles, once nothing automatic is left. The answer may take hours:
        cancel the call where the wait ends for a reason of the agent's own. No answer means: do nothing.
        """
        ...

    def ask(self, question: Question) -> None:
        """The agent waits for a person. Answered through `Agent.answer`, also after the time-out."""

    def ask_over(self, question_id: str, outcome: str) -> None:
        """The question went away by itself (`outcome`: what became of it)."""

    async def forking(self, what: str) -> None:
        """The agent is about to fork, clone or move in its tree; returns when the loop is safely paused."""

    def branch(self, marker: Marker | None) -> None:
        """The conversation now stands on another branch, with this newest marker."""

    def moved(self, conversation: Conversation) -> None:
        """The agent's process now serves another conversation than the one it was started for."""

    async def command(self, line: str) -> Answer:
        """A person's command, typed inside the agent (`pause`, `update --every 5m`, …): carried out as any client's.

        Only for what the person typed: the adapter answers for it that no tool of the agent can say this.
        """
        ...

    def left(self, reason: str) -> None:
        """The person ended an agent that was invited, or took it elsewhere: the session closes."""

    def lost(self, reason: str) -> None:
        """The agent's process ended by itself; `reason` has the exit status or signal. The last call made."""


class Agent(Protocol):
    """One running agent process (or connection). Made by `Adapter.agent`, used once."""

    async def start(self) -> AgentStarted:
        """Bring it up and wait until it can take a prompt. AgentUnableError: it could not, in its own words.

        The supervisor bounds the time and calls `close` after a failure.
        """
        ...

    async def prompt(self, prompt: Prompt) -> Handover:
        """Hand over a user-role message. Only called when the agent is idle as far as we know."""
        ...

    async def abort(self, reason: AbortReason) -> None:
        """End the response in flight; withdraw what the agent queued. Returns when asked, not when settled.

        Emits `abort` and is followed by `settled`. A no-op on an idle agent.
        """
        ...

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        """Answer a pending question; `text` reaches the model where it is denied."""
        ...

    async def mark(self, marker: Marker) -> None:
        """Write the marker on the present branch, outside the model's context (capability `branches`)."""
        ...

    async def announce(self, event: Mapping[str, Any]) -> None:
        """Show an attention event (LoopAttentionEventV1) inside the agent, where it has a place a person
        sees and the model does not; elsewhere do nothing."""
        ...

    async def close(self) -> None:
        """End it: ask, then TERM, then KILL, its whole process group; no survivor. `lost` is not called."""
        ...

    @property
    def pid(self) -> int | None:
        """Process id of the agent while it runs."""
        ...


class Adapter(Protocol):
    """The factory registered as entry point. Stateless; making one imports nothing heavy.

    It may have a property `files`, a mapping of names to paths: what a person gives to the agent by hand, printed by
    `loopsup agents --path NAME`.
    """

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str:
        """One line for `loopsup agents`."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        """None if the agent can be started on this machine, else one sentence: what is missing, what to do."""
        ...

    def check_args(self, args: tuple[str, ...], cwd: Path) -> None:
        """UsageError for arguments after `--` that this adapter cannot pass on."""
        ...

    def locate(self, ref: str, cwd: Path, env: Mapping[str, str]) -> Conversation:
        """The existing conversation `ref` (id, id prefix or file) means. NotFoundError, UsageError."""
        ...

    def agent(self, launch: Launch, events: AgentEvents) -> Agent:
        """A new, not yet started agent."""
        ...
