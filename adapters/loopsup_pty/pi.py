"""What Pi itself says of its state in its terminal, with PI_PROGRAM_STATUS=1.

An operating system command at each change: `7501;state=idle|working|blocked|done|error:app=pi:msg=BASE64`.
"""

from __future__ import annotations

import base64
import binascii

from loopsup.ports import AgentEvents
from loopsup_pty.reading import Reading
from loopsup_pty.voices import ScreenVoice

SWITCH = {"PI_PROGRAM_STATUS": "1"}
PREFIX = b"7501;"
MAX_WORDS = 4000  # characters of a dialog's title


class PiVoice(ScreenVoice):
    """The screen's voice, which knows better when Pi works, and when it waits for a person."""

    def __init__(self, reading: Reading, events: AgentEvents) -> None:
        super().__init__(reading, events)
        self._state = ""
        self._question: str | None = None
        self._began = False

    def osc(self, body: bytes) -> None:
        """An operating system command of the program."""
        if not body.startswith(PREFIX):
            return
        fields = dict(part.partition(b"=")[::2] for part in body[len(PREFIX) :].split(b":"))
        self._state = fields.get(b"state", b"").decode("ascii", "replace")
        self._began = self._began or self._state == "working"
        self._question = _words(fields.get(b"msg", b"")) if self._state == "blocked" else None

    def mark(self) -> None:
        super().mark()
        self._began = False

    def took(self) -> bool | None:
        return True if self._began else None

    def works(self) -> bool:
        return self._state == "working"

    def asks(self) -> str | None:
        return self._question


def _words(encoded: bytes) -> str:
    try:
        found = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")[:MAX_WORDS]
    except (ValueError, binascii.Error):
        found = ""
    return found or "a dialog"
