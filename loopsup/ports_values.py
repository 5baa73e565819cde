"""The values in the contract between the supervisor and an adapter (`loopsup.ports`, which exports them all)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from loopsup.core.model import Stamp

HOLD_S = 0.25  # a tool call waits no longer for its check: people wait with it, and a check takes milliseconds


class Origin(StrEnum):
    """Who speaks in a user-role message. `ttsr`: a stream rule, after it ended a response half-way."""

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
    keep_partial: bool = False
    """A partial answer can stay in the conversation (`Prompt.keep`)."""
    hold_tools: bool = False
    """With `Launch.hold_tools`, no tool runs before `AgentEvents.tool_call` has answered."""
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
    shell_tool: bool = False
    """`loop_control` is reached by `loopsup control` in the agent's shell: the loop's messages say how."""
    terminal: bool = False
    """The agent has a screen of its own that a person can attach to (`loopsup.terminal.contract`)."""


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
    AgentUnableError. An agent that has only its shell (capability `shell_tool`) gets `env` alone.
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
    declare `native_tool`. `hold_tools`: stream rules are in force, so each tool call is asked about before it runs
    (capability of that name). `invite`: given where the agent runs already, in a person's own terminal: the adapter
    starts none, and gives it what the running one needs to come (one line of text, secret: it never touches a
    file or a command line). None: the agent is ours to start.
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
    hold_tools: bool = False
    invite: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """The loop's state as marked on a branch of the conversation (never seen by the model)."""

    loop_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent is up and ready for a prompt. `file`: its session file or directory, None if it has none.

    `marker`: the newest marker on the present branch, `newest`: the newest one on any (capability `branches`).
    They differ where a person moved in the tree while no supervisor was there. `peer`: the process of an agent that
    was invited: what runs below it is the agent's, and nothing of it is ever ended.
    """

    conversation: Conversation
    marker: Marker | None = None
    newest: Marker | None = None
    peer: int | None = None


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user-role message. `stamp` None: not of the loop. `message_id` is echoed in the `user.message` event.

    `autopilot`: the model is offered `task_complete` (capability of that name); what follows from its call, or
    from the lack of one, is the supervisor's business.

    Origin `ttsr`: the response before it was aborted (`AbortReason.TTSR`) because it broke a rule, and has settled;
    this is the reminder, and the model shall try again. Where the adapter can, no user has said it
    (`continue_without_message`), and what was cut off, that message and no other, is taken out of the conversation
    (`rewind`) or, with `keep`, stays in it before the reminder (`keep_partial`).

    `wanted`: False once the prompt is needed no more; an adapter that waits before it sends asks then, and refuses.
    """

    text: str
    origin: Origin
    message_id: str
    stamp: Stamp | None = None
    autopilot: bool = False
    keep: bool = False
    wanted: Callable[[], bool] = field(default=_always, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The agent took the prompt; `AgentEvents.settled` will follow."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The prompt provably started nothing and is not queued anywhere. `busy`: because the agent works.

    `retry_ms`: when it may be free again, None for the usual time of a busy agent.
    """

    reason: str
    busy: bool = False
    retry_ms: int | None = None


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
class Answer:
    """What became of a person's command, in one sentence; `status` is the status object after it."""

    done: bool
    message: str
    status: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the agent's tools, with its complete arguments, before the tool runs."""

    id: str
    tool: str
    arguments: object


@dataclass(frozen=True, slots=True)
class ToolVerdict:
    """Whether the tool may run; `reason` is for the model. `ends`: the whole response is being ended for it."""

    allowed: bool = True
    reason: str = ""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """The agent waits for a person. `kind`: "permission" | "dialog". `text` is the agent's own words."""

    id: str
    kind: str
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Broken:
    """An adapter that was found and could not be loaded."""

    name: str
    error: str
    capabilities: Capabilities = field(default_factory=Capabilities)
