"""What one agent process reports. Cut when the process is ended, so that it cannot speak for the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loopsup.core.continuity import NOTHING
from loopsup.ports import (
    AgentEvents,
    Answer,
    Conversation,
    DecisionCall,
    Doing,
    Interruption,
    Marker,
    Plan,
    Question,
    ToolCall,
    ToolVerdict,
    Verdict,
)

if TYPE_CHECKING:
    from loopsup.shell.host import AgentHost


class AgentLink(AgentEvents):
    """The `AgentEvents` of one process."""

    def __init__(self, host: AgentHost) -> None:
        self._host: AgentHost | None = host

    def cut(self) -> None:
        self._host = None

    def emit(self, kind: str, data: Mapping[str, Any], *, agent_id: str | None = None) -> None:
        if self._host is not None:
            self._host.hearing.emit(kind, data, agent_id)

    def doing(self, what: Doing) -> None:
        if self._host is not None:
            self._host.hearing.doing(what)

    def settled(self, *, aborted: bool) -> None:
        if self._host is not None:
            self._host.hearing.settled(aborted)

    def busy(self) -> None:
        if self._host is not None:
            self._host.hearing.busy()

    async def decide(self, call: DecisionCall) -> Verdict:
        if self._host is None:
            return Verdict(False, "the supervisor has let go of this agent; end your turn")
        return self._host.hearing.decide(call)

    async def tool_call(self, call: ToolCall) -> ToolVerdict:
        if self._host is None:
            return ToolVerdict(False, "the supervisor has let go of this agent; end your turn", ends=True)
        return self._host.hearing.tool_call(call)

    async def interrupted(self, turn: Interruption) -> Plan:
        return NOTHING if self._host is None else await self._host.recovery.interrupted(turn)

    def ask(self, question: Question) -> None:
        if self._host is not None:
            self._host.questions.ask(question)

    def ask_over(self, question_id: str, outcome: str) -> None:
        if self._host is not None:
            self._host.questions.over(question_id, outcome)

    async def forking(self, what: str) -> None:
        if self._host is not None:
            self._host.desk.forking(what)

    def branch(self, marker: Marker | None) -> None:
        if self._host is not None:
            self._host.desk.branch(marker)

    def moved(self, conversation: Conversation) -> None:
        if self._host is not None:
            self._host.spawn(self._host.hearing.moved(conversation))

    async def command(self, line: str) -> Answer:
        if self._host is None:
            return Answer(False, "the supervisor has let go of this agent")
        return await self._host.desk.typed(line)

    def left(self, reason: str) -> None:
        if self._host is not None:
            self._host.desk.left(reason)

    def lost(self, reason: str) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.hearing.lost(reason)
