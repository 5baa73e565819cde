"""Checks of `loop_control`. Where the capability `native_tool` is absent the decision does not come through the
adapter, and these checks see to it that nothing pretends it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopsup.ports import DecisionCall, Verdict
from loopsup.testing.driving import STAMP, driven, require
from loopsup.testing.harness import Decide, Harness, Talk
from loopsup.testing.recording import Decided, Emitted, Recorded
from loopsup.testing.talking import paired, round_answering
from loopsup.wire import events as wire

COMPLETE: Mapping[str, str] = {"decision": "complete", "summary": "all green", "evidence": "make test: 12 passed"}
VAGUE: Mapping[str, str] = {"decision": "complete", "summary": "all green", "evidence": "-"}
REFUSAL = Verdict(False, "evidence-must-cite-something")


async def stamps_the_decision(harness: Harness) -> None:
    """The call arrives once, with the model's arguments and the stamp of the prompt in flight."""
    async with driven(harness, Decide((COMPLETE,))) as it:
        await it.round()
    decisions = it.events.decisions()
    if not it.can.native_tool:
        require(not decisions, "`decide` was called without the capability `native_tool`: mend the declaration")
        return
    require(len(decisions) == 1, f"one `loop_control` call must be one `decide`, not {len(decisions)}")
    require(
        decisions[0].call == DecisionCall(STAMP, COMPLETE),
        f"`decide` must get the stamp of the prompt and the model's own arguments, not {decisions[0].call}",
    )
    require(
        it.events.settlements() == [False], "an accepted decision must be followed by one `settled(aborted=False)`"
    )
    paired(it.events)


async def ends_the_turn_when_accepted(harness: Harness) -> None:
    """Capability `terminate_on_tool`: after an accepted decision there is no further model request."""
    async with driven(harness, Decide((COMPLETE,))) as it:
        await it.round()
    if it.can.terminate_on_tool:
        require(_turns_after_acceptance(it.events.calls) == 0, "a turn was started after an accepted decision")


async def ends_a_mixed_batch_when_accepted(harness: Harness) -> None:
    """The same where the response also has an ordinary tool call, which is still carried out."""
    async with driven(harness, Decide((COMPLETE,), with_tool=True)) as it:
        await round_answering(it)
    if not it.can.terminate_on_tool:
        return
    require(len(it.events.decisions()) == 1, "the decision of a mixed batch must arrive once")
    require(_turns_after_acceptance(it.events.calls) == 0, "a turn was started after the decision of a mixed batch")
    finished = [data for data in it.events.emitted(wire.TOOL_COMPLETE) if data["success"]]
    require(finished, "the other tool of a mixed batch must be carried out")
    paired(it.events)


async def goes_on_after_a_refusal(harness: Harness) -> None:
    """A refused decision is a tool error the model reads; the same run may decide again."""
    async with driven(harness, Decide((VAGUE, COMPLETE))) as it:
        if not it.can.native_tool:
            return
        it.events.policy = lambda call: REFUSAL if call.arguments == VAGUE else Verdict(True, "accepted")
        await it.round()
    made = [(decided.call.arguments, decided.verdict.accepted) for decided in it.events.decisions()]
    require(made == [(VAGUE, False), (COMPLETE, True)], f"after a refusal the model must be asked again; got {made}")
    require(
        any(REFUSAL.message in text for text in harness.tool_results()),
        f"the verdict's message must reach the model as the tool's result; it got {harness.tool_results()}",
    )
    require(it.events.settlements() == [False], "a refusal and a new call are one run: one `settled`")
    paired(it.events)


async def decides_nothing_outside_an_iteration(harness: Harness) -> None:
    """A call in a person's turn carries no stamp, also right after an iteration; refused, the turn goes on."""
    async with driven(harness, Talk(), Decide((COMPLETE,))) as it:
        if not it.can.native_tool:
            return
        await it.round()
        await it.round("what happened?", stamp=None)
    stamps = [decided.call.stamp for decided in it.events.decisions()]
    require(stamps == [None], f"a call outside an iteration must carry the stamp None; got {stamps}")
    require(len(it.events.settlements()) == 2, "a refused call must leave the turn going, to its own `settled`")


def _turns_after_acceptance(calls: Sequence[Recorded]) -> int:
    accepted = [at for at, call in enumerate(calls) if isinstance(call, Decided) and call.verdict.accepted]
    require(accepted, "the decision never arrived: `decide` was not called")
    return sum(isinstance(call, Emitted) and call.kind == wire.TURN_START for call in calls[accepted[0] :])
