"""A supervisor becomes its own successor after an upgrade: the same process, the same lock, the new program.

Ownership has no gap, because the lock is an open file that the new program inherits. The agent is ended before and
its conversation resumed by its id when it is needed next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from typing import NoReturn

from loopsup.errors import RefusedError
from loopsup.store.lock import SessionLock
from loopsup.wire.control import Launch, encode_launch

CHECK_S = 60.0  # an interpreter and our imports take a second, after an upgrade some; a busy machine gets the rest
# All that a supervisor of this agent is made of. Commands load it only when they need it, so no `--help` shows it.
CHECK = """\
import sys
import loopsup.cli.app, loopsup.cli.supervise, loopsup.shell.main
from loopsup import registry
registry.load(sys.argv[1])
"""


def _command() -> list[str]:
    return [sys.executable, "-P", "-m", "loopsup"]


async def check_program(agent: str) -> None:
    """RefusedError where what is installed now cannot serve a session of `agent`: then nothing is given up."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            CHECK,
            agent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise RefusedError(f"{sys.executable} cannot be run ({error.strerror}); nothing was changed") from error
    try:
        _, said = await asyncio.wait_for(process.communicate(), CHECK_S)
    except TimeoutError as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise RefusedError("the program that is installed now does not start; nothing was changed") from error
    if process.returncode != 0:
        last = (said.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[-1]
        raise RefusedError(f"the program that is installed now does not start ({last}); nothing was changed")


def become(launch: Launch, lock: SessionLock) -> NoReturn:
    """Go on as the program that is installed now. OSError: it cannot be executed, and the session is lost."""
    with tempfile.TemporaryFile() as request:
        request.write(encode_launch(launch))
        request.seek(0)
        os.dup2(request.fileno(), 0)
    nobody = os.open(os.devnull, os.O_WRONLY)  # whoever asked looks at the socket
    os.set_inheritable(nobody, True)
    argv = [*_command(), "supervise", "--ready-fd", str(nobody), "--lock-fd", str(lock.handed_on())]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)  # noqa: S606 (no shell is wanted)
