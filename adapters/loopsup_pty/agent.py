"""One running terminal program behind the `Agent` port.

Rules. A message goes in only at an empty prompt; a question on the screen is shown, never answered by a key; a
program whose question nobody answers in time is ended. What the program does is seen on its screen, so a response
ends where the screen has come to rest. A decision comes only from the carrier.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    Question,
    Refused,
)
from loopsup.terminal.child import TerminalChild
from loopsup.terminal.stage import Stage
from loopsup.wire import events as ev
from loopsup_pty.copilot import CopilotVoice, log_file
from loopsup_pty.profiles import Profile
from loopsup_pty.reading import MENU_ROWS, Reading, Seen, still
from loopsup_pty.server_file import ServerFile
from loopsup_pty.starting import LOOK_S, until_ready
from loopsup_pty.voices import ScreenVoice, Voice
from loopsup_pty.writing import Writer, typeable, unsendable

BUSY_S = 1.5  # a program without patterns that has written for so long by itself works
HAND_S = 1.0  # and this long after a key or a new size it may only be showing that
FREE_S = 3.0  # a prompt may wait for a redraw to settle
CARRIER_S = 15.0  # our server is up in a tenth of a second; the program starts it before its prompt, or soon after
TRUSTED_S = 30.0  # a screen that rests for so long is believed, whatever the program's log says
WAIT_MS = 5_000  # for a person's draft, or a question: each try is two records in the journal
DECIDING = re.compile(r"\bloopsup[\"']?\s+control\b")  # on a busy machine it runs for seconds, and nothing is shown


class _Run:
    """One response."""

    def __init__(self) -> None:
        self.aborting = False
        self.picture: tuple[str, ...] = ()


class PtyAgent:
    """See `loopsup.ports.Agent` and `Staged`."""

    def __init__(self, profile: Profile, argv: Sequence[str], launch: Launch, events: AgentEvents) -> None:
        self._profile = profile
        self._argv = list(argv)
        self._launch = launch
        self._events = events
        self._name = Path(self._argv[0]).name
        self._server = ServerFile(launch) if profile.mcp is not None else None
        self._loop = asyncio.get_running_loop()
        self._stage: Stage | None = None
        self._child: TerminalChild | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._ending: asyncio.Task[None] | None = None
        self._up = self._closing = False
        self._hand = asyncio.Lock()  # held while a message is handed over
        self._run: _Run | None = None
        self._question: str | None = None
        self._moving_since: float | None = None
        self._why: str | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    @property
    def stage(self) -> Stage:
        assert self._stage is not None, "asked of an agent that has started"
        return self._stage

    # ---- start and end ----------------------------------------------------------------------------

    async def start(self) -> AgentStarted:
        launch = self._launch
        if launch.resume is not None and not self._profile.resumes:
            raise AgentUnableError(
                f"{self._name} cannot go on with its earlier conversation by itself; "
                "where it can with an argument, give that to `start`: -- --resume '--continue' COMMAND"
            )
        self._stage = Stage()
        self._reading = Reading(self._stage, self._profile)
        self._voice = self._voice_of(self._reading)
        self._writer = Writer(
            self._stage, self._reading, lambda: self.pid is not None, self._voice.took, self._hint()
        )
        carried = {} if launch.carrier is None else launch.carrier.env
        if self._server is not None:
            self._server.write()
        try:
            self._child = await self._stage.spawn(self._argv, cwd=launch.cwd, env={**launch.env, **carried})
        except (FileNotFoundError, PermissionError) as error:
            raise AgentUnableError(
                f"the command {self._argv[0]} cannot be executed (not on PATH, or no program); "
                "correct what stands after --, or install it"
            ) from error
        except OSError as error:
            raise AgentUnableError(f"the program could not be started ({self._argv[0]}): {error}") from error
        self._tasks.append(asyncio.create_task(self._until_exit(self._child)))
        await until_ready(self._name, self._reading, self._stage, lambda: self.pid is not None, self._ended)
        await self._offered()
        self._reading.rested()
        self._up = True
        self._tasks.append(asyncio.create_task(self._watch()))
        identity = launch.session_id if launch.resume is None else launch.resume.id
        return AgentStarted(Conversation(identity, None, launch.cwd))

    def _voice_of(self, reading: Reading) -> Voice:
        if self._profile.log is None:
            return ScreenVoice(reading, self._events)
        resume = self._launch.resume
        session = self._launch.session_id if resume is None else resume.id
        return CopilotVoice(log_file(self._launch.env, session), self._events)

    def _hint(self) -> str:
        """How to be understood better, where the user can."""
        return "" if self._profile.command else "; --busy, --quiet and --empty (before the command) say how to tell"

    async def _offered(self) -> None:
        """The model has the tool. AgentUnableError."""
        if self._profile.mcp is None or self._launch.carrier is None:
            return
        problem = await self._launch.carrier.offered(CARRIER_S)
        if problem is not None:
            raise AgentUnableError(f"{self._name}: {problem}")

    async def _ended(self) -> str:
        """Why it did, of a program that has."""
        await asyncio.wait(self._tasks)
        return str(self._why)

    async def _until_exit(self, child: TerminalChild) -> None:
        reason = await child.wait()
        self.stage.close()
        told = f"{reason}; its screen: {self._reading.shown()}"
        self._why = told if self._why is None else f"{self._why} ({reason})"
        self._over("the program ended")
        if self._run is not None:
            error = {"kind": "agent_lost", "message": self._why}
            self._finish("error", error)
        async with self._hand:  # what became of a message is told first: one that was not sent is sent again
            if self._up and not self._closing:
                self._events.lost(self._why)

    async def close(self) -> None:
        self._closing = True
        if self._server is not None:
            self._server.remove()
        if self._child is not None:
            await self._child.close()
            await asyncio.wait(self._tasks[:1])
        if self._ending is not None:
            await asyncio.wait([self._ending])
        for task in self._tasks[1:]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # ---- verbs ------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt) -> Handover:
        if self.pid is None:
            return Refused(f"{self._name} is not running")
        if (fault := unsendable(prompt.text)) is not None:
            return Refused(fault)
        if self._run is not None or self._hand.locked():
            return Refused(f"{self._name} is working", busy=True)
        try:
            async with self._hand:
                return await self._at_the_prompt(prompt)
        finally:
            self.stage.changed.set()

    async def _at_the_prompt(self, prompt: Prompt) -> Handover:
        if (why := await self._not_free()) is not None:
            return Refused(why, busy=True, retry_ms=WAIT_MS)
        if not prompt.wanted():
            return Refused("it is needed no more")
        return await self._write(prompt.text)

    async def _not_free(self) -> str | None:
        """Why no message can go in now."""
        end = self._loop.time() + FREE_S
        while True:
            seen = self._look()
            if seen is Seen.IDLE:
                break
            if seen is Seen.MENU:
                return f"{self._name} asks a question on its screen; answer it there: `loopsup attach`"
            if self._loop.time() >= end or self.pid is None:
                return f"{self._name} is not at its prompt"
            await asyncio.sleep(LOOK_S)
        if not self._reading.empty():
            return f"an unsent text stands on the input line of {self._name}; send it or clear it: `loopsup attach`"
        return None

    async def _write(self, text: str) -> Handover:
        stage = self.stage
        self._reading.rested()
        self._reading.said = " ".join(typeable(text).split())
        self._voice.mark()
        stage.hold()
        try:
            outcome = await self._writer.hand_over(text)
        finally:
            stage.release()
        if isinstance(outcome, Accepted):
            if self.pid is None:
                return Accepted()  # and `lost` is said next
            self._begin()
        return outcome

    async def abort(self, reason: AbortReason) -> None:
        run = self._run
        if run is None or run.aborting:
            return
        run.aborting = True
        self._events.emit(ev.ABORT, {"reason": reason.value})
        if self._look() is Seen.MENU or self._reading.asks(self.stage.picture.lines()):
            self._launch.log(
                f"{self._name} asks a question: no key is sent to it, so it is ended where it does not go on"
            )
            return
        self.stage.write(self._profile.interrupt)
        self.stage.changed.set()

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        """No key answers a question; denied (in time) means that the program ends."""
        if allow or question_id != self._question or self._child is None or self._ending is not None:
            return
        self._why = f"it was ended, as nobody answered the question on its screen: {self._reading.shown(MENU_ROWS)}"
        self._ending = asyncio.create_task(self._child.close())

    async def mark(self, marker: Marker) -> None:
        """A terminal program has no branches for us."""

    async def announce(self, event: Mapping[str, Any]) -> None:
        """Nothing is written over somebody else's screen."""

    # ---- what is seen -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look whenever something may have changed, and until it has settled."""
        stage = self.stage
        settled = False
        while self.pid is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stage.changed.wait(), None if settled else LOOK_S)
            stage.changed.clear()
            if self.pid is None:
                return
            if self._hand.locked():
                settled = False
                continue
            seen = self._look()
            self._note(seen)
            settled = seen is Seen.MENU or (seen is Seen.IDLE and self._question is None)

    def _look(self) -> Seen:
        """The screen, and what the program tells besides."""
        self._voice.poll()
        seen = self._reading.look(self._loop.time())
        if self._voice.asks() is not None:
            return Seen.MENU
        if seen is Seen.IDLE and self.stage.quiet_s < TRUSTED_S and (self._voice.works() or self._decides()):
            return Seen.BUSY
        return seen

    def _decides(self) -> bool:
        """`loopsup control` runs in its shell."""
        ours = self._run is not None or self._hand.locked()
        return ours and self._child is not None and self._child.runs(DECIDING)

    def _note(self, seen: Seen) -> None:
        if seen is Seen.MENU:
            self._ask()
            return
        if self._question is not None and seen is not Seen.UNSETTLED:
            if self._reading.asked(self._loop.time()):
                return
            self._over("answered in its terminal")
        if self._run is not None:
            self._follow(self._run, seen)
        elif seen is Seen.IDLE:
            self._moving_since = None
            if not self.stage.draft.open:
                self._reading.empty()
        elif self._works_by_itself(seen):
            self._events.busy()
            self._begin()

    def _works_by_itself(self, seen: Seen) -> bool:
        if seen is Seen.BUSY:
            return True
        if self._reading.tells_work or self.stage.untouched_s < HAND_S:
            self._moving_since = None
            return False
        shown = self.stage.last_output
        self._moving_since = shown if self._moving_since is None else self._moving_since
        return shown - self._moving_since >= BUSY_S

    def _follow(self, run: _Run, seen: Seen) -> None:
        if seen is Seen.IDLE:
            self._reading.rested()
            self._finish("aborted" if run.aborting else "stop")
            self._events.settled(aborted=run.aborting)
            return
        picture = still(self.stage.picture.lines())
        if picture != run.picture:  # something happened, which a spinner is not
            run.picture = picture
            self._events.doing(self._voice.doing())

    def _begin(self) -> None:
        self._moving_since = None
        self._run = _Run()
        self._voice.begin()

    def _finish(self, reason: str, error: Mapping[str, Any] | None = None) -> None:
        self._run = None
        self._voice.end(reason, error)

    def _ask(self) -> None:
        if self._question is None:
            self._question = str(uuid.uuid4())
            words = self._voice.asks() or self._reading.question()
            self._events.ask(Question(self._question, "dialog", "", words))

    def _over(self, outcome: str) -> None:
        question, self._question = self._question, None
        if question is not None:
            self._events.ask_over(question, outcome)
