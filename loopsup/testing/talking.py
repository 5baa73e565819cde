"""Checks of prompts, events and turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loopsup.ports import AbortReason, Accepted, Doing, Refused
from loopsup.testing.driving import Driven, driven, require
from loopsup.testing.harness import Hang, Harness, Talk, UseTool
from loopsup.testing.recording import Asked, Did, Emitted, RecordingEvents
from loopsup.wire import events as wire

TRICKY = (
    "[loop iteration]\n"
    "  two leading blanks, {braces} {} {{}}, 100 % %s, $HOME $(touch x) `id`, \"double\" 'single' \\n \\\\\n"
    "\ttab, U+2028 [\u2028], U+2029 [\u2029], NEL [\u0085], emoji \U0001f501, ção, <b>&amp;</b>\n"
    "\n"
    "/not-a-command !not-a-shell\n"
    "trailing blanks  "
)
ONLY_BY_THE_SUPERVISOR = ("session.idle", "permission.", "loop.")


async def settles_once(harness: Harness) -> None:
    """Every accepted prompt is followed by exactly one `settled`, and then the agent does nothing."""
    async with driven(harness, Talk("one"), Talk("two")) as it:
        await it.round()
        require(
            it.events.now_doing() is Doing.NOTHING, "`doing(NOTHING)` must have been said when `settled` is called"
        )
        await it.round()
    require(
        it.events.settlements() == [False, False],
        f"two prompts must give two `settled(aborted=False)`, not {it.events.settlements()}",
    )


async def says_what_it_does(harness: Harness) -> None:
    """A model request is announced: the watchdog counts silence only while one is open."""
    async with driven(harness, UseTool()) as it:
        await round_answering(it)
        said = [call.what for call in it.events.calls if isinstance(call, Did)]
        require(Doing.MODEL in said, "call `doing(MODEL)` when a model request is opened")


async def speaks_the_vocabulary(harness: Harness) -> None:
    """Only known events, with exactly their keys, as plain JSON; none of those the supervisor writes itself."""
    async with driven(harness, UseTool()) as it:
        await round_answering(it)
    for call in it.events.calls:
        if isinstance(call, Emitted):
            _known(call.kind, call.data)
    require(not it.events.emitted(wire.USER_MESSAGE), "do not emit `user.message` for a prompt that was handed over")
    messages = it.events.emitted(wire.ASSISTANT_MESSAGE)
    require(any(message["text"] for message in messages), "emit `assistant.message` with what the model said")


async def pairs_its_turns(harness: Harness) -> None:
    """Every turn_start has its turn_end, after the tools of that turn; every tool start its completion."""
    async with driven(harness, UseTool()) as it:
        await round_answering(it)
    paired(it.events)
    turns = len(it.events.emitted(wire.TURN_START))
    if it.can.turn_events:
        require(turns == 2, f"a tool call and a text are two model calls: two turn pairs, not {turns}")
        require(
            it.events.emitted(wire.TOOL_START), "emit `tool.execution_start` and `_complete` for the agent's tools"
        )
    else:
        require(turns <= 1, f"without `turn_events` there is at most one turn pair for each prompt, not {turns}")


async def keeps_the_prompt_verbatim(harness: Harness) -> None:
    """The text reaches the model byte for byte (capability `verbatim`)."""
    async with driven(harness, Talk()) as it:
        await it.round(TRICKY)
    heard = harness.heard()
    require(len(heard) == 1, f"one prompt must be one user message before the model, not {len(heard)}")
    if it.can.verbatim:
        require(heard[-1] == TRICKY, f"the prompt was changed on its way; the model got {heard[-1]!r}")


async def refuses_a_prompt_while_busy(harness: Harness) -> None:
    """A prompt to a working agent is refused as busy; if it is taken all the same, it is not lost."""
    async with driven(harness, Hang(), Talk()) as it:
        await it.working()
        outcome = await it.hand_over("one more thing", stamp=None)
        if isinstance(outcome, Accepted):
            if it.can.abort:
                await it.agent.abort(AbortReason.USER)
            await it.events.wait_for("a second `settled` (two accepted)", lambda: len(it.events.settlements()) == 2)
            return
        require(
            isinstance(outcome, Refused) and outcome.busy,
            f"a prompt to a working agent must give Refused(busy=True), as nothing may be lost; not {outcome}",
        )


async def announces_without_telling_the_model(harness: Harness) -> None:
    """`announce` starts nothing and never becomes part of what the model sees."""
    async with driven(harness, Talk("one"), Talk("two")) as it:
        await it.round("first")
        await it.agent.announce({"version": 1, "status": "blocked", "summary": "needs a key", "objective": "watch"})
        await it.round("second")
    heard = harness.heard()
    require(heard == ["first", "second"], f"what is announced must not reach the model; it got {heard}")
    require(it.events.settlements() == [False, False], "`announce` must not start or settle anything")


async def asks_before_tools(harness: Harness) -> None:
    """Capability `permissions`: a question comes, is answered, and the agent settles."""
    async with driven(harness, UseTool()) as it:
        await round_answering(it)
        asked = any(isinstance(call, Asked) for call in it.events.calls)
        require(asked or not it.can.permissions, "declared `permissions` and ran a tool without calling `ask`")


async def round_answering(it: Driven) -> None:
    """One round; permission questions are allowed."""
    before, seen = len(it.events.settlements()), len(it.events.calls)
    await it.accepted()
    while len(it.events.settlements()) == before:
        await it.events.more_than(seen)
        new, seen = it.events.calls[seen:], len(it.events.calls)
        for call in new:
            if isinstance(call, Asked):
                await it.agent.answer(call.question.id, True, "")


def paired(events: RecordingEvents) -> None:
    """Turns do not overlap, each ends after its tools; ids are used once."""
    turn: str | None = None
    tools: set[str] = set()
    seen: set[str] = set()
    for call in events.calls:
        if not isinstance(call, Emitted) or call.agent_id is not None:
            continue
        match call.kind:
            case wire.TURN_START:
                require(turn is None, f"turn {call.data['turnId']} starts before turn {turn} has ended")
                turn = call.data["turnId"]
                require(turn not in seen, f"the turn id {turn} is used twice")
                seen.add(str(turn))
            case wire.TURN_END:
                require(turn == call.data["turnId"], f"turn_end of {call.data['turnId']} while {turn} is under way")
                require(not tools, f"turn_end of {turn} before its tools {sorted(tools)} have completed")
                turn = None
            case wire.TOOL_START:
                require(
                    turn is not None, "tool.execution_start outside a turn: turn_end comes after the turn's tools"
                )
                tools.add(call.data["toolCallId"])
            case wire.TOOL_COMPLETE:
                require(call.data["toolCallId"] in tools, "tool.execution_complete without its tool.execution_start")
                tools.remove(call.data["toolCallId"])
    require(turn is None, f"turn {turn} has no turn_end")


def _known(kind: str, data: Mapping[str, Any]) -> None:
    require(kind in wire.TYPES, f"`{kind}` is no event of the vocabulary (loopsup.wire.events.TYPES)")
    require(not kind.startswith(ONLY_BY_THE_SUPERVISOR), f"`{kind}` is written by the supervisor: do not emit it")
    keys = wire.TYPES[kind]
    allowed = {key.removesuffix("?") for key in keys}
    needed = {key for key in keys if not key.endswith("?")}
    require(set(data) <= allowed, f"`{kind}` has unknown keys {sorted(set(data) - allowed)}; it may have {keys}")
    require(needed <= set(data), f"`{kind}` lacks {sorted(needed - set(data))}")
    try:
        json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as error:
        require(False, f"`{kind}` must be plain JSON: {error}")
    if kind == wire.TURN_END:
        require(data["stopReason"] in wire.STOP_REASONS, f"unknown stopReason {data['stopReason']!r}")
