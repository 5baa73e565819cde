"""Checks of what an adapter says about itself, and of bringing the agent up."""

from __future__ import annotations

import dataclasses
import os
import re

import psutil

from loopsup.errors import UsageError
from loopsup.ports import AgentUnableError, Capabilities, NotFoundError
from loopsup.testing.driving import MARK, driven, require
from loopsup.testing.harness import Harness, Talk
from loopsup.testing.recording import RecordingEvents

NOWHERE = "/nonexistent/loopsup-conformance/agent"
METHODS = ("missing", "check_args", "locate", "agent")


async def speaks_the_protocol(harness: Harness) -> None:
    """Name, summary, capabilities and methods are there and of the right kind."""
    adapter = harness.adapter
    require(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", adapter.name), f"`name` {adapter.name!r}: use a-z, 0-9, - and _")
    require(
        one_sentence(adapter.summary), f"`summary` must be one line for `loopsup agents`, not {adapter.summary!r}"
    )
    require(
        isinstance(adapter.capabilities, Capabilities),
        f"`capabilities` must be a loopsup.ports.Capabilities, not {type(adapter.capabilities).__name__}",
    )
    for method in METHODS:
        require(callable(getattr(adapter, method, None)), f"`{method}` is missing; see loopsup.ports.Adapter")


async def declares_consistently(harness: Harness) -> None:
    """Capabilities do not contradict each other."""
    can = harness.adapter.capabilities
    require(
        can.native_tool or not can.terminate_on_tool, "`terminate_on_tool` needs `native_tool`: mend the declaration"
    )
    require(can.follow_up_queue or not can.withdraw, "`withdraw` needs `follow_up_queue`: mend the declaration")
    require(can.abort or not can.rewind, "`rewind` needs `abort`: mend the declaration")
    require(can.abort or not can.keep_partial, "`keep_partial` needs `abort`: mend the declaration")


async def names_a_missing_command(harness: Harness) -> None:
    """A command that does not exist is told before anything is started."""
    launch = harness.launch()
    words = harness.adapter.missing(NOWHERE, launch.env)
    require(
        words is not None and one_sentence(words),
        f"`missing` must say in one sentence that {NOWHERE} cannot be used and what to do, not {words!r}",
    )


async def fails_to_start_in_words(harness: Harness) -> None:
    """`start` with a command that does not exist raises AgentUnableError, and `close` after it is harmless."""
    harness.script(Talk())
    events = RecordingEvents()
    agent = harness.adapter.agent(dataclasses.replace(harness.launch(), command=NOWHERE), events)
    error = None
    try:
        await agent.start()
    except AgentUnableError as unable:
        error = unable
    finally:
        await agent.close()
    require(error is not None, f"`start` with the command {NOWHERE} must raise AgentUnableError")
    require(str(error).strip(), "the AgentUnableError of `start` must have words")
    require(not events.losses(), "`lost` must not be called for an agent that never came up: `start` raises instead")


async def does_not_find_a_foreign_conversation(harness: Harness) -> None:
    """`locate` of nonsense raises NotFoundError (or UsageError)."""
    launch = harness.launch()
    try:
        found = harness.adapter.locate("loopsup-no-such-conversation", launch.cwd, launch.env)
    except (NotFoundError, UsageError) as error:
        require(one_sentence(str(error)), f"the error of `locate` must be one sentence, not {str(error)!r}")
        return
    require(False, f"`locate` of a conversation that does not exist must raise NotFoundError, not return {found}")


async def starts_a_conversation(harness: Harness) -> None:
    """`start` returns when a prompt can be taken, and says which conversation this is."""
    async with driven(harness, Talk()) as it:
        conversation = it.started.conversation
        require(conversation.id.strip(), "`AgentStarted.conversation.id` must not be empty")
        cwd = harness.launch().cwd
        require(conversation.cwd == cwd, f"`conversation.cwd` must be the launch's {cwd}, not {conversation.cwd}")
        require(not it.events.settlements(), "`settled` was called without a prompt")


async def runs_as_a_process_of_its_own(harness: Harness) -> None:
    """The child has the launch's environment and its own session, out of reach of a terminal's Ctrl-C."""
    async with driven(harness, Talk()) as it:
        pid = it.agent.pid
        if not it.can.process:
            require(pid is None, "`pid` must be None where the capability `process` is absent")
            return
        require(pid is not None, "`pid` must be the agent's process id while it runs (capability `process`)")
        assert pid is not None
        require(
            os.getsid(pid) != os.getsid(0), "start the agent in a session of its own (loopsup.process.Child does)"
        )
        variables = psutil.Process(pid).environ()
        require(MARK in variables, "the agent must get the environment of the launch (`Launch.env`), all of it")


def one_sentence(text: object) -> bool:
    """Not blank, one line."""
    return isinstance(text, str) and bool(text.strip()) and "\n" not in text
