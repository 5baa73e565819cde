"""The processes of a child that leads a session of its own, and how all of them end.

Ending them is a ladder of named grace periods: ask (the caller's way), TERM to the group, KILL to the group; then
the same two for whatever is left of the tree: descendants in sessions of their own, and members of the session that
lost their parent. A process that left both the tree and the session before `end` (a daemon) is none of ours any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psutil

ASK_GRACE_S = 5.0  # an agent saves its session in well under a second; a slow disk gets the rest
TERM_GRACE_S = 3.0  # the same again for one that ignored the request
KILL_GRACE_S = 2.0  # the kernel needs milliseconds; beyond this the process is stuck in a system call
POLL_S = 0.01  # descendants are not our children: their end can only be looked for


@dataclass(frozen=True, slots=True)
class Ladder:
    """How long each rung of `close` waits, in seconds."""

    ask_s: float = ASK_GRACE_S
    term_s: float = TERM_GRACE_S
    kill_s: float = KILL_GRACE_S


LADDER = Ladder()


class Tree:
    """The processes of a leader that was started in a session (and process group) of its own.

    `returncode` tells whether the leader has ended, `exited` is set when it has. `mark`: a variable in the
    environment of every process of the tree, by which those are found whose parent is gone already.
    """

    def __init__(
        self,
        pid: int,
        returncode: Callable[[], int | None],
        exited: asyncio.Event,
        ladder: Ladder = LADDER,
        mark: tuple[str, str] | None = None,
    ) -> None:
        self.pid = pid
        self._returncode = returncode
        self._exited = exited
        self._ladder = ladder
        self._mark = mark
        self._leader: psutil.Process | None = None
        self._family: set[psutil.Process] = set()
        self.seen: set[psutil.Process] = set()  # the tree at the last look
        with contextlib.suppress(psutil.Error):  # it may have ended already
            self._leader = psutil.Process(pid)

    def look(self) -> None:
        """Remember the tree as it is, for the case that the leader is killed."""
        with contextlib.suppress(psutil.Error):
            if self._leader is not None and self._returncode() is None:
                self.seen = set(self._leader.children(recursive=True))

    async def end(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Climb the ladder until the whole tree is gone. Cancelled on the way: it is killed."""
        if self._returncode() is not None:  # it ended by itself: who belonged to it can only be remembered
            self._family |= self.seen
        try:
            self._remember_family()
            await self._climb(ask)
            await self.sweep()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """KILL the whole tree at once."""
        self._remember_family()
        self._signal_group(signal.SIGKILL)
        self._signal_family(signal.SIGKILL)

    async def _climb(self, ask: Callable[[], Awaitable[None]]) -> None:
        if self._returncode() is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ladder.ask_s):
                with contextlib.suppress(OSError):  # it cannot be asked any more: it may be ending just now
                    await ask()
                await self._exited.wait()
        for number, grace_s in ((signal.SIGTERM, self._ladder.term_s), (signal.SIGKILL, self._ladder.kill_s)):
            if self._returncode() is not None:
                return
            self._remember_family()
            self._signal_group(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), grace_s)

    async def sweep(self) -> None:
        """What outlived the leader: asked with TERM, then killed."""
        self._remember_family()
        for number, grace_s in ((signal.SIGTERM, self._ladder.term_s), (signal.SIGKILL, self._ladder.kill_s)):
            self._signal_family(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    while any(map(_alive, self._family)):  # noqa: ASYNC110 (no event tells it)
                        await asyncio.sleep(POLL_S)
                    return

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._reused():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _signal_family(self, number: signal.Signals) -> None:
        for member in self._family:
            with contextlib.suppress(psutil.Error):  # psutil refuses a pid that was given to another process
                member.send_signal(number)

    def _remember_family(self) -> None:
        """Descendants, wherever they went, and all of the session, whoever their parent is."""
        if self._leader is None or (self._reused() and self._mark is None):
            return
        with contextlib.suppress(psutil.Error):
            self._family.update(self._leader.children(recursive=True))
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if pid != self.pid and self._is_ours(pid):
                    self._family.add(psutil.Process(pid))

    def _is_ours(self, pid: int) -> bool:
        if self._mark is not None and psutil.Process(pid).environ().get(self._mark[0]) == self._mark[1]:
            return True
        return not self._reused() and os.getsid(pid) == self.pid

    def _reused(self) -> bool:
        """The child has ended and its number belongs to a stranger: group and session are not ours."""
        if self._returncode() is None:
            return False
        return psutil.pid_exists(self.pid) and (self._leader is None or not self._leader.is_running())


def _alive(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
