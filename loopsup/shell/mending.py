"""A control socket that vanished (somebody cleaned up) is made again, within one turn of the supervisor's timer."""

from __future__ import annotations

from loopsup.errors import LoopsupError
from loopsup.shell.control import ControlServer
from loopsup.shell.supervisor import Supervisor

MEND_RETRY_MS = 1000  # a socket that cannot be made again is tried this often, not at every turn


class Mender:
    """Called at each turn."""

    def __init__(self, server: ControlServer, supervisor: Supervisor) -> None:
        self._server = server
        self._supervisor = supervisor
        self._mending = False
        self._told = ""
        self._not_before = 0

    def __call__(self) -> None:
        now = self._supervisor.clock.now().mono
        if not self._mending and now >= self._not_before and self._server.vanished:
            self._mending = True
            self._not_before = now + MEND_RETRY_MS
            self._supervisor.spawn(self._mend())

    async def _mend(self) -> None:
        try:
            await self._server.restart()
            if self._supervisor.note == self._told:
                self._supervisor.note = None
        except LoopsupError as error:
            self._told = self._supervisor.note = error.message
        finally:
            self._mending = False
