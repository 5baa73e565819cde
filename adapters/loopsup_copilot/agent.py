"""One running Copilot (the CLI as a headless server on stdio, through its SDK) behind the `Agent` port.

Rules: one server for one session; Copilot's own driving forces (autopilot, schedules) are off; a prompt is
sent only while nothing runs, because Copilot would queue it silently; the stamp of a decision is that of
the prompt Copilot has begun with, so that a run it started by itself decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from loopsup.ports import (
    HOLD_S,
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    AgentUnableError,
    Conversation,
    DecisionCall,
    Handover,
    Launch,
    Marker,
    Prompt,
    Refused,
    Stamp,
    Unknown,
)
from loopsup.wire import events as ev
from loopsup_copilot import executable, gate, opening, sdk
from loopsup_copilot.arguments import parse
from loopsup_copilot.diagnostics import Diagnostics
from loopsup_copilot.questions import Questions
from loopsup_copilot.server import Server
from loopsup_copilot.tool import SUB_AGENT
from loopsup_copilot.translate import (
    KNOWN,
    Now,
    Output,
    PromptBegun,
    RunSettled,
    Translator,
    Working,
)
from loopsup_copilot.voice import Emit

START_S = 70.0  # 0.5 s; at its very first start the CLI unpacks 235 MB: 15 s on a good disk
HANDOVER_S = 50.0  # the server answers in milliseconds
CALL_S = 4.0  # the same, for an abort, an answer or a note
CLOSE_SETTLE_S = 5.0  # an abort settles in milliseconds; a tool that ignores it is ended by the ladder

_ASKING = frozenset({"permission.requested", "permission.completed"})


class CopilotAgent:
    """See `loopsup.ports.Agent`."""

    def __init__(
        self,
        launch: Launch,
        events: AgentEvents,
        start_s: float = START_S,
        handover_s: float = HANDOVER_S,
        hold_s: float = HOLD_S,
    ) -> None:
        self._launch = launch
        self._events = events
        self._start_s = start_s
        self._handover_s = handover_s
        self._hold_s = hold_s
        self._diagnostics = Diagnostics(launch.log)
        self._server = Server(launch, self._diagnostics)
        self._watch: asyncio.Task[None] | None = None
        self._session: Any = None
        self._translator = Translator()
        self._questions = Questions(events, self._decide_permission)
        self._started = self._closing = False
        self._offer: Prompt | None = None  # handed over; Copilot has not begun with it
        self._begun: Prompt | None = None  # Copilot works on it
        self._unasked = False  # Copilot works by itself
        self._aborting = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        return self._server.pid

    # ---- start and end ----------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        launch = self._launch
        path = executable.find(launch.command, launch.env)
        reason = executable.missing(launch.command, launch.env)
        if path is None or reason is not None:
            raise AgentUnableError(reason or "copilot cannot be found")
        given = parse(launch.args, launch.cwd)
        opening.check(launch, given)
        self._diagnostics.open()
        try:
            async with asyncio.timeout(self._start_s):
                await self._server.start(path)
                self._watch = asyncio.create_task(self._until_exit())
                conversation = await self._open(given.options)
        except TimeoutError as error:
            words = f"copilot did not get ready within {self._start_s:g} s"
            raise AgentUnableError(self._diagnostics.explain(words)) from error
        self._started = True
        return AgentStarted(conversation)

    async def _open(self, given: Mapping[str, Any]) -> Conversation:
        options = opening.options(self._launch, given)
        options["tools"] = [sdk.tool(self._decide)]
        options["on_permission_request"] = sdk.leave_pending
        options["on_user_input_request"] = self._on_dialog
        options["on_event"] = self._on_event
        if before_tools := gate.hooks(self._launch, self._events, self._hold_s):
            options["hooks"] = before_tools
        self._session, conversation = await opening.open_session(self._server.client, self._launch, options)
        return conversation

    async def _until_exit(self) -> None:
        reason = await self._server.until_exit()
        for output in self._translator.lost():
            self._tell(output)
        self._questions.gone()
        self._idle.set()
        if self._started and not self._closing:
            self._diagnostics.shut()
            self._events.lost(self._diagnostics.explain(reason))

    async def close(self) -> None:
        self._closing = True
        if self.pid is not None and not self._idle.is_set():
            await self.abort(AbortReason.SHUTDOWN)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), CLOSE_SETTLE_S)
        for task in list(self._tasks):
            task.cancel()
        await self._server.close()
        if self._watch is not None:
            await self._watch
        self._diagnostics.shut()

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if self.pid is None or self._session is None:
            return Refused("copilot is not running")
        if not self._idle.is_set():
            return Refused("copilot is working", busy=True)
        self._offer = prompt
        self._idle.clear()
        mode = "autopilot" if prompt.autopilot else "interactive"  # said each time: the last one sticks
        try:
            await asyncio.wait_for(self._session.send(prompt.text, agent_mode=mode), self._handover_s)
        except TimeoutError:
            return Unknown(f"copilot did not answer within {self._handover_s:g} s")
        except Exception as error:
            if not sdk.is_refusal(error):
                return Unknown(f"{type(error).__name__}: {error}")
            self._offer = None
            if not self._unasked:
                self._idle.set()
            return Refused(str(error))
        return Accepted()

    async def abort(self, reason: AbortReason) -> None:
        if self._idle.is_set() or self._session is None:
            return
        self._aborting = True
        self._events.emit(ev.ABORT, {"reason": reason.value})
        await self._call("abort", self._session.abort())
        self._questions.cancel_dialogs("cancelled")  # not before: the model would be asked with that for an answer

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        await self._questions.answer(question_id, allow, text)

    async def mark(self, marker: Marker) -> None:
        """Copilot's conversations have no branches."""

    async def announce(self, event: Mapping[str, Any]) -> None:
        """A note in the session's timeline, which the model does not see."""
        if self._session is not None:
            words = f"loop {event.get('status')}: {event.get('summary')}"
            await self._call("announce", self._session.log(words, level="warning"))

    async def _call(self, what: str, work: Any) -> None:
        try:
            await asyncio.wait_for(work, CALL_S)
        except Exception as error:
            self._launch.log(f"{what}: copilot did not do it: {type(error).__name__}: {error}")

    # ---- from Copilot -----------------------------------------------------------------------------

    def _on_event(self, event: Any) -> None:
        kind = str(event.type.value)
        if kind not in KNOWN and kind not in _ASKING:
            return
        record = event.to_dict()
        data = record.get("data") or {}
        self._questions.heard(kind, data)
        for output in self._translator.feed(record):
            self._tell(output)

    def _tell(self, output: Output) -> None:
        match output:
            case Emit(kind, data, agent_id):
                self._events.emit(kind, data, agent_id=agent_id)
            case Now(doing):
                self._events.doing(doing)
            case PromptBegun():
                self._begun, self._offer = self._offer, None
                self._unasked = False
            case Working():
                self._work_unasked()
            case RunSettled(aborted):
                self._run_settled(aborted)

    def _work_unasked(self) -> None:
        if self._begun is not None or self._unasked:
            return
        self._unasked = True
        if self._offer is None:
            self._idle.clear()
            self._events.busy()

    def _run_settled(self, aborted: bool) -> None:
        """With a prompt behind a run of Copilot's own, that run's end settles nothing: the prompt is next."""
        if self._unasked and self._offer is not None and not aborted:
            self._unasked = False
            return
        if self._idle.is_set():
            return  # an abort of nothing, or a note of no consequence
        if aborted and not self._aborting:
            self._events.emit(ev.ABORT, {"reason": AbortReason.USER.value})
        self._offer = self._begun = None
        self._unasked = self._aborting = False
        self._idle.set()
        self._spawn(self._questions.settle("cancelled" if aborted else "withdrawn"))
        self._events.settled(aborted=aborted)

    async def _decide(self, arguments: object, agent_id: str | None) -> tuple[bool, str]:
        if agent_id:
            return False, SUB_AGENT
        verdict = await self._events.decide(DecisionCall(self._stamp, arguments))
        return verdict.accepted, verdict.message

    @property
    def _stamp(self) -> Stamp | None:
        return None if self._begun is None else self._begun.stamp

    async def _decide_permission(self, request_id: str, allow: bool, words: str) -> None:
        if self._session is not None:
            await self._call("answer", sdk.answer_permission(self._session, request_id, allow, words))

    async def _on_dialog(self, request: Any, _invocation: Any) -> dict[str, Any]:
        return {"answer": await self._questions.dialog(request), "wasFreeform": True}

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
