"""What an agent, driven by an adapter, can really do: each declared by the adapter, shown by `loopsup agents`."""

from __future__ import annotations

from dataclasses import dataclass


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
