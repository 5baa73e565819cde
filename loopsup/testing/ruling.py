"""Checks of what stream rules need: a response that ends half-way and is tried again, tools that wait."""

from __future__ import annotations

from loopsup.ports import AbortReason, Accepted, Origin, Prompt, ToolCall, ToolVerdict
from loopsup.testing.driving import STAMP, driven, require
from loopsup.testing.harness import Decide, Hang, Harness, Talk, UseTool
from loopsup.testing.recording import Held
from loopsup.testing.talking import paired
from loopsup.wire import events as wire

CALL = {"decision": "complete", "summary": "done", "evidence": "I looked"}
DENIED = "a rule stands against it"


async def tries_again_after_a_rule(harness: Harness) -> None:
    """After an abort for a rule the reminder is taken, the model sees it last, and a decision still has the stamp."""
    async with driven(harness, Hang(), Decide((CALL,)), Talk()) as it:
        if not it.can.abort:
            return
        await it.working()
        await it.agent.abort(AbortReason.TTSR)
        await it.events.wait_for("`settled` after `abort`", lambda: it.events.settlements() == [True])
        outcome = await it.agent.prompt(Prompt("[rule] Not like this.", Origin.TTSR, "reminder-1", STAMP))
        require(
            isinstance(outcome, Accepted), f"a reminder of a rule must be Accepted after its abort, not {outcome}"
        )
        await it.events.wait_for("`settled` after the reminder", lambda: len(it.events.settlements()) == 2)
        paired(it.events)
        if it.can.native_tool:
            stamps = [decided.call.stamp for decided in it.events.decisions()]
            require(stamps == [STAMP], f"a decision after the reminder belongs to its stamp {STAMP}, not {stamps}")
    require(it.events.settlements() == [True, False], "abort and reminder settle once each")
    heard = harness.heard()
    require(heard and "[rule] Not like this." in heard[-1], f"the model must see the reminder last; it got {heard}")


async def holds_its_tools(harness: Harness) -> None:
    """Capability `hold_tools`: a tool is asked about before it runs, and does not run when it is denied."""
    async with driven(harness, UseTool(), hold_tools=True) as it:
        if not it.can.hold_tools:
            return
        it.events.check = _deny
        await it.round()
    held = [call for call in it.events.calls if isinstance(call, Held)]
    require(held, "with `Launch.hold_tools` each call must be asked about (`tool_call`) before the tool runs")
    require(all(call.call.id and call.call.tool for call in held), f"a call must have an id and a tool: {held}")
    ended = it.events.emitted(wire.TOOL_COMPLETE)
    require(not any(data["success"] for data in ended), f"a denied tool must not run; {ended}")


def _deny(_: ToolCall) -> ToolVerdict:
    return ToolVerdict(False, DENIED)
