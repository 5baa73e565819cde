"""Pi's own terminal interface on a pty of ours, driven through its extension (`--agent pi-tui`).

The keyboard is the person's alone: what loopsup has to say goes over the link (linked.py), never as keys. From the
screen nothing is read but its words for an error, and whether a question stands there before Pi is up; afterwards Pi
says to its terminal when it is at its prompt and when a dialog waits (program_status.py). Rules: a dialog is
answered at the screen; one that nobody answers in time is the end of this Pi, and so is an extension that does not
come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import Awaitable, Callable

from loopsup.ports import AgentEvents, AgentStarted, AgentUnableError, Launch, Question
from loopsup.terminal.child import TerminalChild
from loopsup.terminal.stage import Stage
from loopsup.wire import events as ev
from loopsup_pi import executable, program_status
from loopsup_pi.arguments import INTERFACE, command_line
from loopsup_pi.extension import BEHIND_S, SOURCE
from loopsup_pi.linked import RELOAD_S, START_S, LinkedPi
from loopsup_pi.program_status import Status

NAME = "pi-tui"
FIRST_S = 5.0  # Pi is at its prompt milliseconds after its extensions have begun
LAST_ROWS = 8  # of the screen, in the words about a failed start
DIALOG_ROWS = 15  # of a question with its answers
WIDTH = 800  # characters of them
LOOK_S = 0.1
STILL_S = 0.5  # a dialog stands still; words that scroll by do not
DIALOG = re.compile(r"\benter select\b.*\bcancel\b")  # below each list of answers Pi shows
WAY_ON = "run it yourself in this directory once and answer it"


class OwnTerminal:
    """See `loopsup_pi.linked.Body`. `told` gets what Pi says to its terminal, `over` how it ended, when it has."""

    def __init__(
        self, launch: Launch, told: Callable[[Status], None], over: Callable[[str], Awaitable[None]]
    ) -> None:
        self._launch = launch
        self._told = told
        self._over = over
        self._child: TerminalChild | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._why: str | None = None
        self.stage: Stage | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    async def bring(self, setup: str) -> None:
        launch = self._launch
        path = executable.find(launch.command, launch.env)
        if path is None:
            raise AgentUnableError(executable.missing(launch.command, launch.env, NAME) or "pi cannot be found")
        argv = command_line(path, str(SOURCE), launch.session_id, launch.resume, launch.args, INTERFACE)
        env = {**launch.env, **program_status.SWITCH, "LOOPSUP_PI_SETUP": setup}
        self.stage = Stage(self._on_osc)
        try:
            self._child = await self.stage.spawn(argv, cwd=launch.cwd, env=env)
        except OSError as error:
            raise AgentUnableError(f"pi could not be started ({path}): {error.strerror or error}") from error
        self._watch = asyncio.create_task(self._until_exit(self._child, self.stage))

    async def end(self) -> None:
        if self._child is not None and self._watch is not None:
            await self._child.close()
            await self._watch
        if self._ending is not None:
            await self._ending

    def give_up(self, why: str) -> None:
        """End this Pi for a reason, which is told as that of its end."""
        if self._child is not None and self._ending is None and self.pid is not None:
            self._why = why
            self._ending = asyncio.create_task(self._child.close())

    def shown(self, most: int = LAST_ROWS) -> str:
        """The last rows of its screen, for people."""
        rows = [" ".join(line.split()) for line in self._lines() if line.strip("─ ")]
        return ev.bounded(" / ".join(rows[-most:]), WIDTH) or "its screen is empty"

    def asks(self) -> bool:
        """A list of answers stands there."""
        return any(DIALOG.search(line) for line in self._lines())

    def _lines(self) -> list[str]:
        return [] if self.stage is None else self.stage.picture.lines()

    async def _until_exit(self, child: TerminalChild, stage: Stage) -> None:
        reason = await child.wait()
        stage.close()
        await self._over(reason if self._why is None else f"{self._why} ({reason})")

    def _on_osc(self, body: bytes) -> None:
        if (status := program_status.read(body)) is not None:
            self._told(status)


class TuiPi(LinkedPi):
    """See `loopsup.ports.Agent` and `loopsup.terminal.contract.Staged`."""

    def __init__(self, launch: Launch, events: AgentEvents, start_s: float = START_S) -> None:
        self._terminal = OwnTerminal(launch, self._on_status, self._on_exit)
        self._at_prompt = asyncio.Event()
        self._question: str | None = None
        self._alone: asyncio.TimerHandle | None = None
        super().__init__(launch, events, self._terminal, start_s)

    @property
    def stage(self) -> Stage:
        assert self._terminal.stage is not None, "asked of an agent that has started"
        return self._terminal.stage

    async def start(self) -> AgentStarted:
        look = asyncio.create_task(self._look_for_dialog())
        try:
            started = await super().start()
        except AgentUnableError as error:
            if self.pid is None or look.done():
                raise
            raise AgentUnableError(f"{error}; its screen: {self._terminal.shown()}") from error
        finally:
            look.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_prompt.wait(), FIRST_S)
        return started

    async def _look_for_dialog(self) -> None:
        """Whether the project is trusted Pi asks before any extension is there, and tells its terminal nothing of."""
        clock, since = asyncio.get_running_loop().time, None
        while since is None or clock() - since < STILL_S:
            await asyncio.sleep(LOOK_S)
            since = (since or clock()) if self._terminal.asks() else None
        self._unable(self._terminal.shown(DIALOG_ROWS))

    def _unable(self, question: str) -> None:
        if not self._extension.hello.done():
            told = f"pi asks a question at its start; {WAY_ON}: {question}"
            self._extension.hello.set_exception(AgentUnableError(told))

    async def close(self) -> None:
        if self._alone is not None:
            self._alone.cancel()
        await super().close()

    async def answer(self, question_id: str, allow: bool, text: str) -> None:
        """No key answers a dialog; denied (in time) means that Pi ends."""
        if not allow and question_id == self._question:
            words = self._terminal.shown()
            self._terminal.give_up(f"it was ended, as nobody answered the question on its screen: {words}")

    # ---- from Pi ----------------------------------------------------------------------------------

    def _on_status(self, status: Status) -> None:
        if status.state == "idle":
            self._at_prompt.set()
        if status.asks is None:
            self._answered("answered in its terminal")
        elif not self._extension.hello.done():
            self._unable(status.asks)
        elif self._question is None and not self._closing:
            self._question = str(uuid.uuid4())
            self._events.ask(Question(self._question, "dialog", "", status.asks))

    def _answered(self, outcome: str) -> None:
        question, self._question = self._question, None
        if question is not None:
            self._events.ask_over(question, outcome)

    def _gone(self) -> None:
        super()._gone()
        if not self._closing and self.pid is not None:
            if self._alone is not None:
                self._alone.cancel()
            self._alone = asyncio.get_running_loop().call_later(RELOAD_S, self._not_back_yet)

    def _not_back_yet(self) -> None:
        if not self._extension.link.connected:
            self._terminal.give_up("it was ended, as the extension inside it did not come back")

    async def _on_exit(self, reason: str) -> None:
        await self._extension.link.parted(BEHIND_S)  # `lost` is the last call: what Pi said before goes first
        await self._inbox.released.wait()
        self._answered("the program ended")
        if not self._started:
            reason = f"{reason}; its screen: {self._terminal.shown()}"
        self.ended(reason)
