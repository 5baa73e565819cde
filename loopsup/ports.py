"""What an agent adapter is: the only page an adapter author needs.

An adapter turns one agent's way of being driven into a few verbs (`Agent`) and one event vocabulary
(`loopsup.wire.events`), and says honestly what it can do (`Capabilities`). It is registered as an entry
point in the group `loopsup.adapters` whose object is a callable without arguments returning an `Adapter`.
`loopsup.testing` has the conformance suite every adapter must pass.

Everything here runs in one asyncio event loop: the supervisor calls the adapter, the adapter calls the
`AgentEvents` it was given, both on that loop's thread. An adapter never blocks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from loopsup.core.classify import Boundary, Interruption
from loopsup.core.continuity import Plan
from loopsup.core.model import AbortReason, Stamp
from loopsup.errors import AgentUnableError, NotFoundError, RefusedError

__all__ = [
    "AbortReason",
    "Accepted",
    "Adapter",
    "Agent",
    "AgentEvents",
    "AgentStarted",
    "AgentUnableError",
    "Boundary",
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
    "Unknown",
    "Verdict",
]


class Origin(StrEnum):
    """Who speaks in a user-role message."""

    USER = "user"
    LOOP = "loop"
    PROTOCOL = "protocol"
    TTSR = "ttsr"
    AUTOPILOT = "autopilot"
    HEARTBEAT = "heartbeat"


class Doing(StrEnum):
    """What the agent is busy with. Silence is suspicious only while a model request is open."""

    NOTHING = "nothing"
    MODEL = "model"
    TOOL = "tool"
    BACKOFF = "backoff"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this agent, driven this way, can really do. What is absent degrades visibly, never silently."""

    abort: bool = False
    """A response can be ended half-way."""
    rewind: bool = False
    """A partial answer can be dropped from the conversation."""
    continue_without_message: bool = False
    """The model can be called again without a new user message."""
    native_tool: bool = False
    """`loop_control` is a tool of the agent itself."""
    terminate_on_tool: bool = False
    """An accepted decision ends the turn: no further model request."""
    follow_up_queue: bool = False
    """The agent has a queue of its own for messages sent while it works."""
    withdraw: bool = False
    """What sits in that queue can be taken back."""
    turn_events: bool = False
    """One turn_start/turn_end pair per LLM call; without it one pair per prompt is counted."""
    usage: bool = False
    """Token counts in the stream."""
    resume: bool = False
    """A conversation can be continued by a new process."""
    permissions: bool = False
    """The agent asks before it runs a tool."""
    deny_tools: bool = False
    """Tools can be denied before they run."""
    verbatim: bool = True
    """The objective reaches the model byte for byte."""
    branches: bool = False
    """Conversations have branches; `Agent.mark` writes the loop's marker on the present one."""
    task_complete: bool = False
    """The agent has a `task_complete` tool, offered in answer to a prompt with `autopilot`."""
    process: bool = True
    """The agent is a child process with a pid."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """`[permissions]` of the configuration. `allow_all` is `start --allow-all`. `timeout_ms` in milliseconds."""

    mode: str = "ask"  # "ask" | "allow" | "deny"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    timeout_ms: int = 300_000
    allow_all: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """An existing conversation of the agent: its id there, its file (None: it has none), its directory."""

    id: str
    file: Path | None
    cwd: Path


@dataclass(frozen=True, slots=True)
class Carrier:
    """How `loop_control` reaches the model of an agent without a native tool. Valid for one start of the agent.

    The adapter makes it an MCP server (stdio) of the agent's session, called `name`, started as `command` with
    `args` and `env` (never put `env` on a command line: it holds a token), and adds `env` to the agent's own
    environment, too, for `loopsup control` in its shell. The calls go straight to the supervisor, which puts the
    stamp of the prompt in flight on them; the adapter never reports one. Before `start` returns it awaits
    `offered(seconds)`: None, or one sentence that says why the model does not have the tool; that is an
    AgentUnableError.
    """

    name: str
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    offered: Callable[[float], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to bring an agent up for one session.

    `session_id`: the id the agent shall use for a new conversation (where it takes one). `resume`: the
    conversation to go on with, None for a new one. `command`: configured executable, None for the usual
    one on PATH. `args`: given by the user after `--`, passed on as they are. `env`: the whole environment
    of the agent; the adapter adds its own variables to it. `state_dir`: a private directory (0700) that
    outlives the process, for agents without a session file of their own. `run_dir`: a private directory
    for sockets. `log`: one line into supervisor.log; never secrets. `carrier`: given where the adapter does not
    declare `native_tool`.
    """

    session_id: str
    resume: Conversation | None
    cwd: Path
    command: str | None
    args: tuple[str, ...]
    env: Mapping[str, str]
    state_dir: Path
    run_dir: Path
    permissions: Permissions
    log: Callable[[str], None]
    carrier: Carrier | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """The loop's state as marked on a branch of the conversation (never seen by the model)."""

    loop_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent is up and ready for a prompt. `file`: its session file or directory, None if it has none.

    `marker`: the newest marker on the present branch, `newest`: the newest one on any (capability `branches`).
    They differ where a person moved in the tree while no supervisor was there.
    """

    conversation: Conversation
    marker: Marker | None = None
    newest: Marker | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user-role message. `stamp` None: not of the loop. `message_id` is echoed in the `user.message` event.

    `autopilot`: the model is offered `task_complete` (capability of that name); what follows from its call, or
    from the lack of one, is the supervisor's business.
    """

    text: str
    origin: Origin
    message_id: str
    stamp: Stamp | None = None
    autopilot: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The agent took the prompt; `AgentEvents.settled` will follow."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The prompt provably started nothing and is not queued anywhere. `busy`: because the agent works."""

    reason: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say whether the prompt arrived. It will not be sent again."""

    reason: str


Handover = Accepted | Refused | Unknown


@dataclass(frozen=True, slots=True)
class DecisionCall:
    """A call of `loop_control`. The adapter, not the model, puts the stamp of the prompt in flight on it."""

    stamp: Stamp | None
    arguments: object


@dataclass(frozen=True, slots=True)
class Verdict:
    """The supervisor's answer, for the model. Accepted: a result that ends the turn; else a tool error."""

    accepted: bool
    message: str


@dataclass(frozen=True, slots=True)
class Question:
    """The agent waits for a person. `kind`: "permission" | "dialog". `text` is the agent's own words."""

    id: str
    kind: str
    tool: str
    text: str


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
    """The factory registered as entry point. Stateless; making one imports nothing heavy."""

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


@dataclass(frozen=True, slots=True)
class Broken:
    """An adapter that was found and could not be loaded."""

    name: str
    error: str
    capabilities: Capabilities = field(default_factory=Capabilities)
