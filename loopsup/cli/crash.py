"""Where the traceback of a defect goes: `$LOOPSUP_HOME/crash.log`, private, the last one only."""

from __future__ import annotations

import contextlib
import os
import traceback

MAX_TRACEBACK = 64 * 1024  # characters; the deepest recursion Python allows prints more, its end says enough
LOG_NAME = "crash.log"


def record(error: Exception) -> str:
    """Keep the traceback; one sentence for the person says where. Never raises."""
    what = f"internal error ({type(error).__name__})"
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    with contextlib.suppress(Exception):
        from loopsup.store.home import find_home

        path = find_home().root / LOG_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
            os.fchmod(descriptor, 0o600)
            log.write(text)
        return f"{what}; the traceback is in {path}, please report it"
    return f"{what} and its traceback could not be stored; run again with LOOPSUP_DEBUG=1 to see it"
