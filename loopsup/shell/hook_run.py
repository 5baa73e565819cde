"""`loopsup hook-run` (hidden): one attention hook, run for a command that worked without a supervisor.

The order comes on standard input: {"folder": …, "path": …, "event": {…}}. The outcome is appended to the
session's events if nobody owns the session now, else to its supervisor.log: only the owner writes events.
Nothing here can fail loudly, because nobody is there to listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from loopsup.clock import SystemClock
from loopsup.errors import LoopsupError
from loopsup.shell.hook import HookResult, run_hook
from loopsup.store.eventlog import EventWriter
from loopsup.store.files import open_private
from loopsup.store.lock import SessionLock
from loopsup.wire.events import LOOP_HOOK
from loopsup.wire.times import instant

LOG = "supervisor.log"


def main() -> int:
    """Carry out the order on standard input; 0 if the hook went well."""
    order = json.loads(sys.stdin.buffer.read())
    clock = SystemClock()
    event = json.dumps(order["event"], ensure_ascii=True).encode("ascii")
    result = asyncio.run(run_hook(order["path"], event, env=os.environ, clock=clock))
    record(Path(order["folder"]), result, clock.now().wall)
    return 0 if result.ok else 1


def record(folder: Path, result: HookResult, at: int) -> None:
    """Make the outcome visible in the session."""
    try:
        with SessionLock.acquire(folder), EventWriter.open(folder) as events:
            events.append(at, LOOP_HOOK, result.data())
    except LoopsupError:
        with contextlib.suppress(OSError, LoopsupError), os.fdopen(_log(folder), "ab") as log:
            log.write(f"{instant(at)} {result.describe()}\n".encode("utf-8", "backslashreplace"))


def _log(folder: Path) -> int:
    return open_private(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
