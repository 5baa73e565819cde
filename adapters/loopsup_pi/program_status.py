"""What Pi itself says of its state to its terminal, with PI_PROGRAM_STATUS=1.

An operating system command at each change: `7501;state=idle|working|blocked|done|error:app=pi:msg=BASE64`.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

SWITCH = {"PI_PROGRAM_STATUS": "1"}
PREFIX = b"7501;"
MAX_WORDS = 4000  # characters of a dialog's title


class Status(NamedTuple):
    """`asks`: the dialog that waits for a person, None if there is none."""

    state: str
    asks: str | None


def read(body: bytes) -> Status | None:
    """The body of an operating system command; None: it tells of something else."""
    if not body.startswith(PREFIX):
        return None
    fields = dict(part.partition(b"=")[::2] for part in body.removeprefix(PREFIX).split(b":"))
    state = fields.get(b"state", b"").decode("ascii", "replace")
    return Status(state, _words(fields.get(b"msg", b"")) if state == "blocked" else None)


def _words(encoded: bytes) -> str:
    try:
        found = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")[:MAX_WORDS]
    except (ValueError, binascii.Error):
        found = ""
    return found or "a dialog"
