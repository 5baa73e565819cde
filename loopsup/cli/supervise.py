"""`loopsup supervise` (hidden): the process a detached `start` leaves behind.

It reads one launch request from standard input and answers with one response line on the descriptor
`--ready-fd`, also where it cannot even begin; after that, nothing but its socket and its files speak for it.
Standard output and standard error are the session's supervisor.log.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Annotated

import typer

from loopsup.cli.common import show_status
from loopsup.errors import LoopsupError, NotFoundError, UsageError
from loopsup.wire.control import MAX_LINE, Launch, Response, decode_launch, encode_invite, encode_response


def supervise(
    ready_fd: Annotated[int, typer.Option("--ready-fd", metavar="N", help="Where the first response goes.")],
    lock_fd: Annotated[
        int | None, typer.Option("--lock-fd", metavar="N", help="The lock that is held already.")
    ] = None,
) -> int:
    """Serve one session (started by loopsup itself)."""
    ready = Ready(ready_fd)
    launch: Launch | None = None
    try:
        launch = _read_launch()
        from loopsup.shell.main import supervise as serve

        code = serve(launch, ready.answer, ready.invite, lock_fd)
    except LoopsupError as error:
        ready.answer(Response(error=error))
        if launch is None or not launch.foreground:
            raise
        return _told(error, launch)
    except Exception as error:  # a defect: into supervisor.log, and one sentence to whoever waits
        traceback.print_exc()
        failure = LoopsupError(f"internal error in the supervisor ({type(error).__name__})")
        ready.answer(Response(error=failure))
        return failure.exit if launch is None or not launch.foreground else _told(failure, launch)
    finally:
        ready.close()
    if launch.foreground:  # a `start --foreground` that became this by a reload
        try:
            show_end(launch)
        except LoopsupError as error:
            return _told(error, launch)
    return code


def _told(error: LoopsupError, launch: Launch) -> int:
    """To whoever has this in the foreground: they said at the start, not in our arguments, how they want it."""
    from loopsup.cli.app import report

    return report(error, launch.as_json)


def show_end(launch: Launch) -> None:
    """How it stands when a supervisor in the foreground has ended."""
    from loopsup import offline
    from loopsup.cli.selection import named

    with contextlib.suppress(NotFoundError):
        show_status(offline.status(named(launch.name)), as_json=launch.as_json)


class Ready:
    """The descriptor for the one response; it takes one, and whoever waits may be gone."""

    def __init__(self, descriptor: int) -> None:
        try:
            os.set_inheritable(descriptor, False)  # the agent must not keep it open
        except OSError as error:
            raise UsageError(f"--ready-fd {descriptor} is not an open descriptor") from error
        self._descriptor: int | None = descriptor

    def answer(self, response: Response) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError), os.fdopen(self._descriptor, "wb") as pipe:
            self._descriptor = None
            pipe.write(encode_response(response))

    def invite(self, text: str) -> None:
        """What an agent that runs already needs to connect; before the response, to whoever waits for that."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, encode_invite(text))  # far below what a pipe takes at once

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _read_launch() -> Launch:
    """The request; standard input is then /dev/null, so that nothing below can read from it."""
    line = sys.stdin.buffer.readline(MAX_LINE + 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return decode_launch(line)
