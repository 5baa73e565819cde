"""Serves one session: puts the parts together, carries out the first command, runs, closes.

A new session's agent is brought up before its loop is accepted: what is wrong with it is told at once, and
nothing is left. The order at the end matters: the journal says how the loop stands before the agent is ended,
and the lock is let go last.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopsup import __version__, registry
from loopsup.clock import quickness, supervisors_clock
from loopsup.core.model import Loop, Paused
from loopsup.core.reaper import IDLE_TTL_MS, Reaping, grace_ms
from loopsup.errors import EXIT_DONE, WAIT_EXIT, StorageError, SupervisorGoneError
from loopsup.ports import Adapter, AgentStarted
from loopsup.shell import leftover, reload
from loopsup.shell.cap import enforce
from loopsup.shell.control import ControlServer
from loopsup.shell.handlers import Handlers
from loopsup.shell.keeper import Keeper
from loopsup.shell.launching import Launching, permissions
from loopsup.shell.log import LogFile
from loopsup.shell.mending import Mender
from loopsup.shell.supervisor import RELOAD, Supervisor
from loopsup.store.config import ReaperConfig, load_config
from loopsup.store.eventlog import EventWriter, recount
from loopsup.store.folders import move_beside, remove
from loopsup.store.home import Home, find_home
from loopsup.store.identity import load_identity, save_identity
from loopsup.store.journal import JournalAppender
from loopsup.store.limits import SharedLimits
from loopsup.store.lock import SessionLock
from loopsup.wire import events as words
from loopsup.wire.control import Launch, Response

# The second is the name such a grace has elsewhere; whoever set it there means the same here (D-31).
GRACE_VARIABLES = ("LOOPSUP_ORPHAN_REAP_GRACE_S", "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S")
SHORTEST_RECHECK_S = 0.02  # under a clock that runs faster; 50 looks a second cost a few percent of a core


def supervise(
    launch: Launch,
    answer: Callable[[Response], None],
    invite: Callable[[str], None] | None = None,
    lock_fd: int | None = None,
) -> int:
    """Serve the session `launch` names until it is closed; returns the exit code.

    `answer` gets one response: that of the first command, or the error that kept the session from opening
    (which is raised as well). `invite` gets before it what an agent that runs already needs to connect (a hosted
    launch). In the foreground the exit code says how the loop stands, else it is 0. `lock_fd`: the descriptor of the
    session's lock, where this process held it before a reload.
    """
    home = find_home()
    home.ensure()
    folder = Path(os.path.realpath(home.sessions / launch.name))
    lock = SessionLock.acquire(folder) if lock_fd is None else SessionLock.adopt(folder, lock_fd)
    try:  # whoever takes a new session back must find it free
        session = _Session(home, folder, lock, launch, answer, invite)
        try:
            code = asyncio.run(session.serve())
            if session.reloads:
                reload.become(replace(launch, open="reload", first=None), session.lock)
            return code
        finally:
            session.lock.release()  # moved to another disk, the folder has another lock
    finally:
        lock.release()


class _Session:
    """The life of one supervisor process."""

    def __init__(
        self,
        home: Home,
        folder: Path,
        lock: SessionLock,
        launch: Launch,
        answer: Callable[[Response], None],
        invite: Callable[[str], None] | None,
    ) -> None:
        self.lock = lock
        self.reloads = False
        self._home = home
        self._folder = folder
        self._launch = launch
        self._answer = answer
        self._invite = invite if launch.hosted else None
        self._log = LogFile(folder)
        self._config = load_config()
        self._identity = replace(load_identity(folder), name=launch.name)
        self._adapter: Adapter = registry.load(self._identity.agent)
        self._clock = supervisors_clock(os.environ)

    async def serve(self) -> int:
        self._log.write(f"supervisor up: loopsup {__version__}, process {os.getpid()}, agent {self._identity.agent}")
        supervisor = self._supervisor()
        supervisor.hosted = self._launch.hosted
        supervisor.host.recovery.share = SharedLimits(self._home.root / "limits", self._identity.id)
        _listen_for_signals(supervisor)
        new = self._launch.open == "new"
        server = ControlServer(Path(self._identity.socket), Handlers(supervisor), lambda: supervisor.host.slot.peer)
        try:
            if not new:
                await leftover.end(self._folder, self._identity.id, self._log.write)
                self._open_files(supervisor)
            supervisor.book.open(Path(self._identity.cwd), guest=self._invite is not None)
            await server.start()  # before the agent of a new session: its tool carrier says hello there
            if new:
                self._place(await _bring_up(supervisor), supervisor)
                self._open_files(supervisor)
            elif self._invite is not None:
                await _bring_up(supervisor)  # it is there now or not at all
        except BaseException:
            await supervisor.host.slot.empty(for_good=True)
            await server.stop()
            self._forget(new)
            raise
        supervisor.maintain = Mender(server, supervisor)
        supervisor.vacancy.maintain = self._enforce_cap(supervisor)
        response = await self._first(supervisor)
        if new and response.error is not None:
            await supervisor.close("refused")
            await server.stop()
            self._forget(new)
            self._answer(response)
            raise response.error
        self._answer(response)
        if self._launch.first is not None and self._launch.first.verb == "tick":
            supervisor.vacancy.fleeting = True
        supervisor.vacancy.ends_with_loop = self._launch.foreground and not self._launch.keep
        supervisor.vacancy.hold_open = self._launch.foreground and self._launch.keep
        reason = await supervisor.run()
        await supervisor.close(reason)
        await server.stop()
        supervisor.bus.close()
        self._log.write(f"closed ({reason})")
        self.reloads = reason == RELOAD
        return _exit_code(supervisor.loop) if self._launch.foreground else EXIT_DONE

    def _supervisor(self) -> Supervisor:
        allow_all = self._identity.allow_all or self._launch.allow_all
        supervisor = Supervisor(
            self._identity,
            self._folder,
            self._adapter,
            Launching(self._config, os.environ, self._write, self._invite),
            permissions(self._config, allow_all),
            self._config.silence_timeout,
            self._clock,
            os.getpid(),
            self._log.write,
            self._config.continuity,
        )
        supervisor.vacancy.settings = _reaping(self._config.reaper, os.environ)
        supervisor.recheck_s = max(SHORTEST_RECHECK_S, supervisor.recheck_s / quickness(os.environ))
        return supervisor

    def _write(self, line: str) -> None:
        """Into the log where it is now: it moves with the folder."""
        self._log.write(line)

    def _enforce_cap(self, supervisor: Supervisor) -> Callable[[], None]:
        def ask_own() -> bool:
            may = supervisor.vacancy.needed() is None
            if may:
                supervisor.ask_to_close("session_cap")
            return may

        def maintain() -> None:
            if cap := supervisor.vacancy.settings.session_cap:
                supervisor.spawn(enforce(self._home, cap, supervisor.identity.name, ask_own))

        return maintain

    async def _first(self, supervisor: Supervisor) -> Response:
        if self._launch.first is None:
            return Response(supervisor.status())
        return await Handlers(supervisor).handle(self._launch.first)

    def _place(self, started: AgentStarted, supervisor: Supervisor) -> None:
        """Now that the agent's own session is known, the folder goes beside it."""
        conversation = started.conversation
        file = None if conversation.file is None else str(conversation.file)
        self._identity = replace(self._identity, agent_session_id=conversation.id, agent_file=file)
        known = supervisor.identity.agent_file is not None
        if conversation.file is not None and not known:
            try:
                moved = move_beside(self._home, self._identity.name, conversation.file, self.lock)
                self._folder, self.lock = moved.folder, moved.lock
                if moved.copied:
                    self._log = LogFile(self._folder)
            except StorageError as error:
                self._log.write(error.message)
        save_identity(self._folder, self._identity)
        supervisor.identity, supervisor.folder = self._identity, self._folder

    def _open_files(self, supervisor: Supervisor) -> None:
        journal = JournalAppender.open(self._folder)
        supervisor.bus.attach(EventWriter.open(self._folder))
        keeper = Keeper(journal, journal.tail.loop, self._clock, supervisor.on_change)
        problem = journal.tail.problem()
        if problem is not None:
            supervisor.note = problem
            supervisor.publish(words.LOOP_NOTICE, {"message": problem})
        if self._config.continuity.problem is not None:
            supervisor.note = supervisor.note or f"configuration: {self._config.continuity.problem}"
            supervisor.publish(words.LOOP_NOTICE, {"message": f"configuration: {self._config.continuity.problem}"})
        left = recount(self._folder, journal.tail.loop)
        for data in left.ends:  # pairs stay equal
            supervisor.publish(words.TURN_END, data, iteration=left.iteration)
        supervisor.open(keeper, left.turns, reload=self._launch.open == "reload")

    def _forget(self, new: bool) -> None:
        if new:
            remove(self._home, self._identity.name, self.lock)


async def _bring_up(supervisor: Supervisor) -> AgentStarted:
    """The agent of a new session; given up at once when the session is asked to close (Ctrl-C of `start`)."""
    starting = asyncio.ensure_future(supervisor.host.start())
    asked = asyncio.ensure_future(supervisor.asked_to_close.wait())
    waiting: list[asyncio.Future[Any]] = [starting, asked]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            raise SupervisorGoneError("the start was given up before the agent was ready")
        return starting.result()
    finally:
        asked.cancel()


def _reaping(given: ReaperConfig, env: Mapping[str, str]) -> Reaping:
    grace = grace_ms((env.get(name) for name in GRACE_VARIABLES), given.orphan_grace_s)
    return Reaping(grace, given.idle_ttl or IDLE_TTL_MS, given.session_cap or 0)


def _listen_for_signals(supervisor: Supervisor) -> None:
    """TERM and INT close the session. HUP means nothing: the terminal is gone, the loop goes on.

    HUP gets a handler rather than being ignored, because an ignored signal is inherited by the agent.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.ask_to_close, "signal")
    loop.add_signal_handler(signal.SIGHUP, lambda: None)


def _exit_code(loop: Loop | None) -> int:
    if loop is None:
        return EXIT_DONE
    place = loop.phase.reason if isinstance(loop.phase, Paused) else loop.state
    return WAIT_EXIT.get(place.value, EXIT_DONE)
