"""What the agent's host tells, made into facts for the core, events for followers and lines of the log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopsup.core.events import AgentLost, AgentStartFailed, ConversationForking, DecisionCalled, IterationSettled
from loopsup.errors import StorageError
from loopsup.ports import AgentStarted, Answer, DecisionCall, Marker, Verdict
from loopsup.shell import leftover, typed
from loopsup.shell.desk import Desk
from loopsup.shell.run import Run
from loopsup.store.identity import save_identity
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

UNANSWERED = "The disk is full or the journal cannot be written, so the decision was not recorded; call it again."


class Reports(Desk):
    """The desk of one supervisor. Has no state of its own."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def publish(
        self, kind: str, data: Mapping[str, Any], *, iteration: int | None = None, agent_id: str | None = None
    ) -> None:
        self._supervisor.publish(kind, data, iteration=iteration, agent_id=agent_id)

    def settled(self, run: Run) -> None:
        if run.stamp is None:
            self._supervisor.touch()
            return
        host = self._supervisor.host
        again_ms = host.recovery.again_ms(run)
        self._supervisor.fact(IterationSettled(run.stamp, host.idle, run.turns, run.aborted, run.error, again_ms))

    def agent_lost(self, run: Run, reason: str) -> None:
        reason = words.bounded(reason)  # it goes into the journal and the status
        self._supervisor.log(f"the agent ended in a turn: {reason}")
        if run.stamp is None:
            self._supervisor.touch()
        elif run.aborted is not None:  # it was to be aborted and had to be ended for it
            self._supervisor.fact(
                IterationSettled(run.stamp, False, run.turns, run.aborted, f"the agent ended: {reason}")
            )
        else:
            self._supervisor.fact(AgentLost(reason, run.turns))

    def start_failed(self, reason: str) -> None:
        reason = words.bounded(reason)
        self._supervisor.log(f"the agent could not be started: {reason}")
        self.publish(words.SESSION_ERROR, {"kind": "agent_start", "message": reason})
        self._supervisor.fact(AgentStartFailed(reason))

    def came_up(self, started: AgentStarted) -> None:
        supervisor, conversation = self._supervisor, started.conversation
        pid = supervisor.host.slot.pid
        supervisor.log(f"the agent is up (process {pid}, conversation {conversation.id})")
        leftover.note(supervisor.folder, pid, supervisor.log)
        supervisor.parking.came_up()
        kind = words.SESSION_START if supervisor.identity.agent_session_id is None else words.SESSION_RESUME
        data: dict[str, Any] = {"agent": supervisor.identity.agent, "agentSessionId": conversation.id}
        if conversation.file is not None:
            data["file"] = str(conversation.file)
        supervisor.publish(kind, {**data, "cwd": str(conversation.cwd)})
        self._check_file(None if conversation.file is None else str(conversation.file))
        loop, keeper = supervisor.loop, supervisor.keeper
        if keeper is None:
            return
        if started.marker != started.newest or (loop is None and started.marker is not None):
            self.branch(started.marker)  # somebody moved in the tree while nobody was here
        elif loop is not None:
            supervisor.mark(Marker(loop.id, keeper.seq))

    def _check_file(self, file: str | None) -> None:
        """An agent whose conversation was deleted begins an empty one under the same id: that is told."""
        supervisor = self._supervisor
        known = supervisor.identity.agent_file
        if file is None or known is None or os.path.realpath(file) == os.path.realpath(known):
            return
        if supervisor.loop is not None and supervisor.loop.prompts_sent:
            told = f"the conversation's file {known} is gone: the agent has begun an empty one in {file}"
            self.publish(words.LOOP_NOTICE, {"message": told})
        supervisor.identity = replace(supervisor.identity, agent_file=file)
        try:
            save_identity(supervisor.folder, supervisor.identity)
        except StorageError as error:
            supervisor.log(error.message)

    def decide(self, call: DecisionCall) -> Verdict:
        if self._supervisor.keeper is None:
            return Verdict(False, "no iteration of the loop is running here; do not repeat this call")
        try:
            reply = self._supervisor.command(DecisionCalled(call.stamp, call.arguments))
        except StorageError:
            return Verdict(False, UNANSWERED)
        return Verdict(reply.ok, reply.message)

    def forking(self, what: str) -> None:
        self._supervisor.fact(ConversationForking())
        self._supervisor.publish(
            words.LOOP_NOTICE, {"message": f"the conversation divides ({what}): the loop pauses"}
        )

    def branch(self, marker: Marker | None) -> None:
        self._supervisor.performer.branch(marker)

    def ready(self) -> None:
        self._supervisor.touch()

    async def typed(self, line: str) -> Answer:
        return await typed.carry_out(self._supervisor, line)

    def left(self, reason: str) -> None:
        self._supervisor.log(f"the agent has left: {reason}")
        self.publish(words.LOOP_NOTICE, {"message": f"the session closes: {words.bounded(reason)}"})
        self._supervisor.ask_to_close("agent_left")
