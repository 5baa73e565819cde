"""What the agent reports, and what its host makes of it: events for the log and the followers, facts for the loop.

Rules. Every turn_start gets its turn_end, also when the agent dies. A response that a rule keeps hold of
is not settled yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loopsup.clock import Clock
from loopsup.core.model import AbortReason
from loopsup.errors import LoopsupError
from loopsup.ports import Conversation, DecisionCall, Doing, ToolCall, ToolVerdict, Verdict
from loopsup.shell.run import Run, account, fail, reminder, resolve
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.host import AgentHost

LOOP_CONTROL = "loop_control"


class Hearing:
    """Called by the link of the agent, and by whatever ends a run in its place."""

    def __init__(self, host: AgentHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def emit(self, kind: str, data: Mapping[str, Any], agent_id: str | None) -> None:
        host = self._host
        host.watch.sign()
        run = host.run
        ours = run is not None and agent_id is None
        told = host.rules.calm(kind, data) if ours else data
        if told is None:
            return
        if run is not None:
            host.told(run)
            if ours:
                account(run, kind, told)
                host.recovery.heard(kind, told)
        iteration = None if run is None else run.iteration
        host.desk.publish(kind, told, iteration=iteration, agent_id=agent_id)
        if ours:
            host.rules.heard(kind, told)

    def doing(self, what: Doing) -> None:
        self._host.watch.doing(what)

    def busy(self) -> None:
        host = self._host
        if host.run is None:
            host.take(Run())
            host.rules.begin(fresh=False)
            host.desk.ready()

    def settled(self, aborted: bool) -> None:
        host = self._host
        if host.run is not None and host.rules.kept:
            host.rules.rest(host.run)
            return
        run = host.let_go()
        host.watch.rest()
        host.questions.clear()
        if run is None:
            return
        host.told(run)
        host.close_turn(run, "aborted" if aborted else "stop")
        if aborted and run.aborted is None:
            run.aborted = AbortReason.USER  # somebody inside the agent pressed its own stop
        host.desk.publish(words.SESSION_IDLE, {"aborted": True} if aborted else {}, iteration=run.iteration)
        following = reminder(run, str(uuid.uuid4()))
        if following is not None:
            host.outbox.add(following)  # behind what a person said meanwhile (P5 before P7)
        resolve(run)
        host.desk.settled(run)
        host.pump()

    def decide(self, call: DecisionCall) -> Verdict:
        host = self._host
        against = host.rules.check(ToolCall("", LOOP_CONTROL, call.arguments))
        if not against.allowed:  # the response is being taken back, and its decision with it
            return Verdict(False, against.reason)
        verdict = host.desk.decide(call)
        if verdict.accepted and host.run is not None:
            host.run.decided = self._clock.now().mono
            host.rules.decided()
        return verdict

    def tool_call(self, call: ToolCall) -> ToolVerdict:
        return self._host.rules.check(call)

    def carried(self, arguments: object) -> Verdict:
        """A decision through the carrier: it belongs to the newest prompt, whatever the model says.

        Also where that seemed to have settled: an agent of which only its screen is known may go on by itself.
        """
        return self.decide(DecisionCall(self._host.prompted, arguments))

    def lost(self, reason: str) -> None:
        host = self._host
        run = host.let_go()
        host.prompted = None
        host.slot.forget()
        host.watch.rest()
        host.questions.clear()
        host.desk.publish(words.SESSION_ERROR, {"kind": "agent_lost", "message": f"the agent ended: {reason}"})
        if run is not None:
            host.close_turn(run, "error")
            host.desk.publish(words.SESSION_IDLE, {}, iteration=run.iteration)
            fail(run.waiter, LoopsupError(f"the agent ended: {reason}"))
            host.desk.agent_lost(run, reason)
        host.pump()

    async def moved(self, conversation: Conversation) -> None:
        """The process serves another conversation now: ours is resumed by a new one when it is needed."""
        host = self._host
        told = f"the agent moved to another conversation ({conversation.id}); this session keeps its own"
        host.desk.publish(words.LOOP_NOTICE, {"message": told})
        await host.end_agent("it moved to another conversation")
