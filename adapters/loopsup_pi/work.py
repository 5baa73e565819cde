"""What Pi is working on, and how the supervisor is told of it: the one account for both ways to drive Pi.

agent.py (stdin and stdout) and linked.py (the extension's link) find out when Pi has taken a prompt and feed the
records here. Rules: a run without a prompt of ours is told as `busy`; `settled` forgets the prompt and its stamp.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from loopsup.ports import AbortReason, Accepted, AgentEvents, Handover, Prompt, Refused, Stamp, Unknown
from loopsup.wire import events as ev
from loopsup_pi.arguments import TOOL
from loopsup_pi.extension import Extension
from loopsup_pi.translate import Emit, Now, Output, Record, RunSettled, RunStarted, ToolHeld, Translator

CLOSE_SETTLE_S = 5.0  # an abort settles in milliseconds; a tool that ignores it is ended by the ladder


class Work:
    """`idle` is set while nothing of ours or of Pi's own is under way."""

    def __init__(self, events: AgentEvents, extension: Extension) -> None:
        self._events = events
        self._extension = extension
        self._translator = Translator()
        self.prompt: Prompt | None = None  # the one of ours that is being worked on
        self.aborting = False
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def running(self) -> bool:
        """Pi has begun a run and has not settled it."""
        return self._translator.running

    @property
    def stamp(self) -> Stamp | None:
        return None if self.prompt is None else self.prompt.stamp

    def taken(self, prompt: Prompt) -> None:
        """Pi works on it now."""
        self.prompt = prompt
        self.idle.clear()

    async def try_again(self, prompt: Prompt) -> Handover:
        """A reminder of a stream rule goes in as a message of the extension's, and Pi goes on without a user's."""
        if not self.idle.is_set():
            return Refused("pi is working", busy=True)
        self.taken(prompt)
        try:
            refused = await self._extension.link.retry(prompt.text, prompt.keep)
        except (TimeoutError, OSError) as error:
            return Unknown(f"the extension inside pi did not say that it had begun: {error}")
        if refused is None:
            return Accepted()
        if not self.running:
            self.idle.set()
        self.prompt = None
        return Refused(refused, busy=True)

    def aborts(self, reason: AbortReason) -> bool:
        """Tell that it is being ended; False if there is nothing to end."""
        if self.idle.is_set():
            return False
        self.aborting = True
        self._events.emit(ev.ABORT, {"reason": reason.value})
        return True

    async def wind_up(self, abort: Callable[[AbortReason], Awaitable[None]]) -> None:
        """Before the session closes: what is under way is ended, and has a moment to settle."""
        if not self.idle.is_set() and not self.aborting:
            await abort(AbortReason.SHUTDOWN)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle.wait(), CLOSE_SETTLE_S)

    def feed(self, record: Record) -> None:
        """The next record of Pi's stream."""
        if record.get("type") == "tool_execution_end" and record.get("toolName") == TOOL:
            self._extension.tool_ended(str(record.get("toolCallId")), record.get("isError") is not True)
        for output in self._translator.feed(record):
            self._tell(output)

    def lost(self) -> None:
        """Pi's stream is over: what it began is told as ended. There is no settlement."""
        for output in self._translator.lost():
            self._tell(output)
        self.idle.set()

    def settle(self, aborted: bool) -> None:
        self.prompt = None
        self.aborting = False
        self.idle.set()
        self._events.settled(aborted=aborted)

    def _tell(self, output: Output) -> None:
        match output:
            case Emit(kind, data):
                self._events.emit(kind, data)
            case Now(doing):
                self._events.doing(doing)
            case ToolHeld(call):
                self._extension.held(call)
            case RunStarted():
                self.idle.clear()
                if self.prompt is None:
                    self._events.busy()
            case RunSettled(aborted):
                if aborted and not self.aborting:  # by the person in front of it, or by an extension of theirs
                    self._events.emit(ev.ABORT, {"reason": AbortReason.USER.value})
                self.settle(aborted)
