"""One running Pi (`pi --mode rpc`) behind the `Agent` port.

Who says what: the stream on stdout tells what happens (translate.py), the extension's socket asks for
verdicts and announces forks (extension.py), requests on stdin make Pi act (rpc.py). Rules: a prompt is sent
without a queueing mode, so that a busy Pi refuses it and never holds it; Pi's queue is cleared before an abort,
because an abort keeps it (but for a stream rule's, after which the work goes on); no command that writes the user's
settings is ever sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopsup.ports import (
    HOLD_S,
    AbortReason,
    Accepted,
    AgentEvents,
    AgentStarted,
    AgentUnableError,
    Conversation,
    Handover,
    Launch,
    Marker,
    Origin,
    Prompt,
    Refused,
    Stamp,
    Unknown,
)
from loopsup.process import Child
from loopsup_pi import dialogs, executable
from loopsup_pi.arguments import command_line
from loopsup_pi.diagnostics import WIDTH, Diagnostics
from loopsup_pi.extension import SOURCE, Extension, Markers
from loopsup_pi.rpc import Inbox, Record, Requests
from loopsup_pi.work import Work

START_S = 60.0  # Pi needs 0.4 s of a processor; a cold disk, a slow machine and the user's extensions get the rest
HANDOVER_S = 50.0  # Pi answers in milliseconds; an input handler of the user's extensions may take its time
STATE_S = 5.0  # `get_state` is answered at once
BEHIND_S = 2.0  # stdout is read within milliseconds of the extension's socket; a verdict is owed within 5 s


class PiAgent:
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
        self._hold_ms = round(hold_s * 1000) if launch.hold_tools else 0
        self._child: Child | None = None
        self._watch: asyncio.Task[str] | None = None
        self._rpc = Requests(self._send)
        self._inbox = Inbox(self._deliver)
        self._extension = Extension(launch, events, self._stamp_in_flight)
        self._work = Work(events, self._extension)
        self._started = self._closing = False
        self._offers: dict[str, Prompt] = {}  # prompts without a response yet, by the id of the request
        self._answered = asyncio.Event()  # there are none
        self._answered.set()
        self._questions = dialogs.Questions(events, self._rpc.tell)
        self._diagnostics = Diagnostics(launch.log)

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    # ---- start and end ----------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        launch = self._launch
        path = executable.find(launch.command, launch.env)
        if path is None:
            raise AgentUnableError(executable.missing(launch.command, launch.env) or "pi cannot be found")
        try:
            await self._extension.link.open()
            await self._spawn(path)
        except OSError as error:
            raise AgentUnableError(f"pi could not be started ({path}): {error.strerror or error}") from error
        response, markers = await self._ready()
        state = response.get("data") or {}
        file = state.get("sessionFile")
        conversation = Conversation(str(state.get("sessionId")), Path(file) if file else None, self._launch.cwd)
        self._extension.serves(conversation)
        self._started = True
        self._diagnostics.came_up()
        return AgentStarted(conversation, *markers)

    async def _ready(self) -> tuple[Record, Markers]:
        """Until Pi answers and its extension has said hello, whichever comes last."""
        assert self._watch is not None
        state = asyncio.ensure_future(self._rpc.ask({"type": "get_state"}, None))
        ready = asyncio.gather(state, self._extension.hello)
        over: set[asyncio.Future[Any]] = {ready, self._watch}
        try:
            await asyncio.wait(over, timeout=self._start_s, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and isinstance(ready.exception(), ConnectionError):
                await asyncio.wait({self._watch}, timeout=STATE_S)
            if self._watch.done():
                raise AgentUnableError(f"pi ended at its start: {self._diagnostics.explain(self._watch.result())}")
            if not ready.done():
                raise AgentUnableError(self._not_ready(state.done()))
            return ready.result()
        finally:
            ready.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await ready

    async def _spawn(self, path: str) -> None:
        launch = self._launch
        argv = command_line(path, str(SOURCE), launch.session_id, launch.resume, launch.args)
        self._child = await Child.spawn(
            argv,
            cwd=launch.cwd,
            env={**launch.env, "LOOPSUP_PI_SETUP": self._extension.setup(self._hold_ms)},
            on_line=self._on_line,
            on_stderr=self._diagnostics.line,
            on_dropped=lambda count: launch.log(f"{count} line(s) of pi were too long and dropped"),
        )
        self._watch = asyncio.create_task(self._until_exit(self._child))

    async def _until_exit(self, child: Child) -> str:
        reason = await child.wait()
        await self._inbox.released.wait()  # `lost` is the last call: what was read before goes first
        self._rpc.fail(f"pi ended: {reason}")
        self._work.lost()
        self._questions.gone()
        if self._started and not self._closing:
            self._events.lost(self._diagnostics.explain(reason))
        return reason

    async def close(self) -> None:
        self._closing = True
        if self._child is not None and self._watch is not None:
            if self.pid is not None:
                await self._work.wind_up(self.abort)
            await self._child.close()
            await self._watch
        await self._extension.link.close()

    def _not_ready(self, answers: bool) -> str:
        """Why `start` gave up on a living process."""
        if (asked := self._questions.first()) is not None:
            return f"pi did not get ready: one of your Pi extensions waits for an answer at its start ({asked})"
        what = "loopsup's extension inside it never said hello" if answers else "it did not answer"
        return self._diagnostics.explain(f"pi did not get ready within {self._start_s:g} s: {what}")

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if self.pid is None:
            return Refused("pi is not running")
        if prompt.origin is Origin.TTSR:
            return await self._work.try_again(prompt)
        identity = self._rpc.new_id()
        self._offers[identity] = prompt
        self._answered.clear()
        try:
            response = await self._rpc.ask(
                {"type": "prompt", "message": prompt.text, "id": identity}, self._handover_s
            )
        except TimeoutError:
            return Unknown(f"pi did not answer within {self._handover_s:g} s")
        except ConnectionError as error:
            return Unknown(str(error))
        finally:
            self._inbox.release_soon()
        if response.get("success") is not True:
            return await self._refusal(str(response.get("error")))
        disposition = (response.get("data") or {}).get("disposition")
        if disposition == "handled":
            return self._handled(prompt)
        return Accepted() if disposition == "started" else Unknown(f"pi answered {disposition!r}")

    async def _refusal(self, error: str) -> Refused:
        """Busy, in Pi's words or by its state; else it cannot (no key, no model)."""
        if "already processing" in error or "compaction is in progress" in error:
            return Refused(error, busy=True)
        with contextlib.suppress(TimeoutError, ConnectionError):
            state = (await self._rpc.ask({"type": "get_state"}, STATE_S)).get("data") or {}
            return Refused(error, busy=bool(state.get("isStreaming") or state.get("isCompacting")))
        return Refused(error)

    def _handled(self, prompt: Prompt) -> Handover:
        """An extension of the user's took it: a command of theirs ran, or their input handler kept it."""
        if prompt.stamp is not None:
            return Refused("an extension of your Pi kept the message for itself (its `input` handler)")
        self._work.prompt = self._work.prompt or prompt
        if not self._work.running:
            asyncio.get_running_loop().call_soon(self._work.settle, False)
        return Accepted()

    async def abort(self, reason: AbortReason) -> None:
        if not self._work.aborts(reason):
            return
        await self._questions.cancel()  # a tool that waits for an answer would outlast the abort
        with contextlib.suppress(OSError):
            if reason is AbortReason.TTSR:  # what waits in Pi's queue goes behind the reminder
                await self._extension.link.end()
                return
            await self._rpc.tell({"type": "clear_queue"})
            await self._rpc.tell({"type": "abort"})

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        await self._questions.answer(question_id, allow, text)

    async def mark(self, marker: Marker) -> None:
        await self._extension.mark(marker)

    async def announce(self, event: Mapping[str, Any]) -> None:
        await self._extension.announce(event)

    # ---- from Pi ----------------------------------------------------------------------------------

    async def _send(self, line: bytes) -> None:
        if self._child is None:
            raise ConnectionResetError("pi is not running")
        await self._child.send(line)

    def _on_line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            self._inbox.put(record)
        else:
            self._launch.log(f"pi printed something that is no record: {line[:WIDTH]!r}")

    def _deliver(self, record: Record) -> None:
        match record.get("type"):
            case "response":
                self._on_response(record)
                return
            case "extension_error":
                self._launch.log(f"an extension of pi failed: {str(record.get('error'))[:WIDTH]}")
        if dialogs.is_dialog(record):
            self._questions.asked(record)
        self._work.feed(record)

    def _on_response(self, record: Record) -> None:
        identity = str(record.get("id"))
        prompt = self._offers.pop(identity, None)
        started = record.get("success") is True and (record.get("data") or {}).get("disposition") == "started"
        if prompt is not None and started:
            self._work.taken(prompt)
            if self._rpc.awaits(identity):
                self._inbox.hold()
        if not self._offers:
            self._answered.set()
        self._rpc.resolve(record)

    async def _stamp_in_flight(self) -> Stamp | None:
        """A fast model's call comes on another channel than Pi's acceptance of the prompt, and may overtake it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), BEHIND_S)
        return self._work.stamp
