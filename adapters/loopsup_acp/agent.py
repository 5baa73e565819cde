"""One running ACP agent behind the `Agent` port.

Rules: one prompt at a time (agents queue a second one, or cancel the first). A prompt is accepted once it is
written; its end is the agent's answer to it, which may never come: the supervisor watches. A decision comes only
from the carrier; an agent that never listed its tools does not come up. Every request at the start is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from loopsup.ports import (
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    AgentUnableError,
    Conversation,
    Handover,
    Launch,
    Marker,
    Prompt,
    Refused,
    ToolCall,
    Unknown,
)
from loopsup.process import Child
from loopsup.wire import events as ev
from loopsup_acp.client import Client, RequestFailedError
from loopsup_acp.diagnostics import Diagnostics
from loopsup_acp.opening import Opening
from loopsup_acp.outcome import Outcome, answered, failed
from loopsup_acp.permissions import CANCELLED, Questions, choose, is_ours
from loopsup_acp.profiles import Profile
from loopsup_acp.translate import Emit, Output, Translator

HANDOVER_S = 50.0  # a prompt is written in milliseconds; an agent that does not read is stuck
CLOSE_SETTLE_S = 3.0  # a cancelled prompt is answered at once; the ladder follows
EXIT_S = 2.0  # between the end of its output and the end of the process
# A caller that wraps `prompt` in `asyncio.wait_for` gets its answer some rounds of the event loop later; an
# answer to the prompt that is as fast must not overtake it.
ROUNDS = 5

T = TypeVar("T")


class _Run:
    """One prompt on its way."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.handed = asyncio.Event()
        self.aborting = False


class AcpAgent:
    """See `loopsup.ports.Agent`."""

    def __init__(self, profile: Profile, argv: Sequence[str], launch: Launch, events: AgentEvents) -> None:
        self._profile = profile
        self._argv = list(argv)
        self._launch = launch
        self._events = events
        self._name = profile.name if profile.command else Path(self._argv[0]).name if self._argv else "acp"
        self._diagnostics = Diagnostics(self._name, launch.log)
        self._client = Client(self._heard, self._asked, self._diagnostics.line)
        self._questions = Questions(events)
        self._translator = Translator()
        self._child: Child | None = None
        self._watch: asyncio.Task[str] | None = None
        self._session = ""
        self._update = asyncio.Event()
        self._started = self._closing = False
        self._run: _Run | None = None
        self._answering: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    # ---- start and end ----------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        await self._spawn()
        opening = Opening(self._name, self._profile, self._launch, self._client, self._update)
        self._session = await self._alive(opening.open())
        if self._launch.resume is None:
            self._translator.expect_no_cost_yet()
        if self._launch.carrier is not None:
            await self._alive(opening.offered(self._launch.carrier))
        self._started = True
        return AgentStarted(Conversation(self._session, None, self._launch.cwd))

    async def _spawn(self) -> None:
        launch = self._launch
        carried = {} if launch.carrier is None else launch.carrier.env
        try:
            self._child = await Child.spawn(
                self._argv,
                cwd=launch.cwd,
                env={**launch.env, **self._profile.env, **carried},
                on_line=self._client.feed,
                on_stderr=self._diagnostics.line,
                on_dropped=lambda count: launch.log(f"{count} line(s) of {self._name} were too long and dropped"),
            )
        except (OSError, IndexError) as error:
            what = self._argv[0] if self._argv else "no command"
            raise AgentUnableError(f"the agent could not be started ({what}): {error}") from error
        self._watch = asyncio.create_task(self._until_exit(self._child))
        await self._client.connect(self._child)

    async def _alive(self, work: Awaitable[T]) -> T:
        """The result of `work`, unless the process ends first."""
        assert self._watch is not None
        task = asyncio.ensure_future(work)
        try:
            waiting: set[asyncio.Future[Any]] = {task, self._watch}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not isinstance(task.exception(), ConnectionError):
                return task.result()
            await asyncio.wait({self._watch}, timeout=EXIT_S)
            ending = self._watch.result() if self._watch.done() else "it closed its output"
            raise AgentUnableError(self._diagnostics.explain(f"{self._name} ended at its start: {ending}"))
        finally:
            if task.cancel():
                with contextlib.suppress(BaseException):
                    await task

    async def _until_exit(self, child: Child) -> str:
        reason = await child.wait()
        self._client.over()
        if self._answering is not None:  # its answer may still be on the way through; else it fails by now
            await asyncio.wait({self._answering}, timeout=EXIT_S)
        self._questions.cancel("the agent ended")
        for output in self._translator.end("error"):
            self._tell(output)
        self._run = None
        self._idle.set()
        if self._started and not self._closing:
            self._events.lost(self._diagnostics.explain(reason))
        return reason

    async def close(self) -> None:
        self._closing = True
        if self._child is not None and self._watch is not None:
            if self.pid is not None and self._run is not None:
                await self.abort(AbortReason.SHUTDOWN)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), CLOSE_SETTLE_S)
            await self._child.close()
            await self._watch
        await self._client.close()

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if self.pid is None:
            return Refused(f"{self._name} is not running")
        if self._run is not None:
            return Refused(f"{self._name} is working", busy=True)
        run = self._run = _Run()
        self._idle.clear()
        self._answering = asyncio.create_task(self._answer(run, prompt.text))
        sent = asyncio.ensure_future(run.sent.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {sent, self._answering}
            await asyncio.wait(waiting, timeout=HANDOVER_S, return_when=asyncio.FIRST_COMPLETED)
            if run.sent.is_set():
                return Accepted()
            return Unknown(f"{self._name} does not read its input, or has just ended")
        finally:
            sent.cancel()
            run.handed.set()

    async def _answer(self, run: _Run, text: str) -> None:
        """From the prompt to the agent's answer to it."""

        def written() -> None:
            run.sent.set()
            for output in self._translator.begin():
                self._tell(output)

        params = {"sessionId": self._session, "prompt": [{"type": "text", "text": text}]}
        try:
            result = await self._client.request("session/prompt", params, written)
            outcome = answered(result, tokens=self._profile.tokens)
        except RequestFailedError as error:
            outcome = failed(error)
        except ConnectionError:
            return  # it has ended, which `_until_exit` tells
        await self._handed(run)
        if self._run is run:
            self._settle(run, outcome)

    async def _handed(self, run: _Run) -> None:
        await run.handed.wait()
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    def _settle(self, run: _Run, outcome: Outcome) -> None:
        aborted = run.aborting or outcome.reason == "aborted"
        if aborted and not run.aborting:  # somebody inside the agent stopped it
            self._events.emit(ev.ABORT, {"reason": AbortReason.USER.value})
        self._questions.cancel("withdrawn")
        reason, error = ("aborted", None) if aborted else (outcome.reason, outcome.error)
        for output in self._translator.end(reason, error=error, usage=outcome.usage):
            self._tell(output)
        self._run = None
        self._idle.set()
        self._events.settled(aborted=aborted)

    async def abort(self, reason: AbortReason) -> None:
        run = self._run
        if run is None or run.aborting:
            return
        run.aborting = True
        self._events.emit(ev.ABORT, {"reason": reason.value})
        self._questions.cancel("cancelled")  # a client that cancels must answer them (ACP)
        with contextlib.suppress(ConnectionError):
            await self._client.notify("session/cancel", {"sessionId": self._session})

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        self._questions.answer(question_id, allow)  # ACP has no place for the words of a denial

    async def mark(self, marker: Marker) -> None:
        """ACP knows no branches."""

    async def announce(self, event: Mapping[str, Any]) -> None:
        """ACP has no place that a person sees and the model does not."""

    # ---- from the agent ---------------------------------------------------------------------------

    def _heard(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            return  # a vendor's own notification
        self._update.set()
        if self._session and params.get("sessionId") not in (None, self._session):
            return
        for output in self._translator.feed(update):
            self._tell(output)

    async def _asked(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        if method != "session/request_permission":
            return None
        call, options = params.get("toolCall"), params.get("options")
        run = self._run
        if run is None or run.aborting or not isinstance(call, dict) or not isinstance(options, list):
            return CANCELLED
        tool = self._translator.tool(call)
        if self._launch.hold_tools and not is_ours(call):  # the calls it asks about; others it runs unasked
            verdict = await self._events.tool_call(ToolCall(str(call.get("toolCallId")), tool.kind, tool.arguments))
            if not verdict.allowed:
                found = [option for option in options if isinstance(option, dict)]
                return choose(found, allow=False) or CANCELLED
        return await self._questions.ask(call, tool, [option for option in options if isinstance(option, dict)])

    def _tell(self, output: Output) -> None:
        if isinstance(output, Emit):
            self._events.emit(output.kind, output.data)
        else:
            self._events.doing(output.doing)
