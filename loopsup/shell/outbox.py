"""Users' messages on their way to the agent: in their order, one at a time, before any prompt of the loop."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from loopsup.clock import Clock
from loopsup.errors import AgentUnableError, LoopsupError
from loopsup.ports import Prompt, Refused
from loopsup.shell.run import Message, fail
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.host import AgentHost

BUSY_RECHECK_MS = 1000  # a message the agent was too busy for is offered again after this


class Outbox:
    """False when it is empty."""

    def __init__(self, host: AgentHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._messages: deque[Message] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: Message) -> None:
        self._messages.append(message)

    def due(self) -> int | None:
        """The monotonic instant at which the next message can be offered; None while it cannot."""
        if not self._messages or self._host.run is not None or not self._host.slot.up:
            return None
        return self._messages[0].not_before

    def offer(self) -> bool:
        """Send the next message on its way, if there is one whose time has come and an agent for it."""
        host = self._host
        if host.run is not None or not self._messages or host.closing:
            return False
        if not host.slot.up:
            host.want()
            return False
        if self._messages[0].not_before > self._clock.now().mono:
            return False
        host.spawn(self._deliver(self._messages[0]))
        return True

    def fail(self, error: LoopsupError) -> None:
        """None of them is delivered; who waits gets the error."""
        while self._messages:
            fail(self._messages.popleft().waiter, error)
            told = f"a message was not delivered: {error.message}"
            self._host.desk.publish(words.LOOP_NOTICE, {"message": told})

    async def _deliver(self, message: Message) -> None:
        host = self._host
        if host.run is not None or not host.slot.up or not self._messages or self._messages[0] is not message:
            return
        self._messages.popleft()
        autopilot = message.reminders is not None
        result = await host.hand_over(Prompt(message.text, message.origin, message.id, autopilot=autopilot), message)
        if not isinstance(result, Refused):
            return
        if result.busy and host.closing:  # nobody offers it again
            self._messages.appendleft(message)
            self.fail(LoopsupError("the session was closed"))
        elif result.busy:
            message.not_before = self._clock.now().mono + (result.retry_ms or BUSY_RECHECK_MS)
            self._messages.appendleft(message)
            self._tell_wait(message, result)
        else:
            fail(message.waiter, AgentUnableError(f"the agent did not take the message: {result.reason}"))
            host.desk.publish(words.LOOP_NOTICE, {"message": f"a message was refused: {result.reason}"})
        host.desk.ready()

    def _tell_wait(self, message: Message, refused: Refused) -> None:
        """Said once, where only a person can end the wait."""
        if refused.retry_ms is not None and message.waits_for != refused.reason:
            message.waits_for = refused.reason
            self._host.desk.publish(words.LOOP_NOTICE, {"message": f"a message waits: {refused.reason}"})
