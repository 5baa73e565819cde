"""The agent's conversation: a private file of JSON lines that outlives its process (standard library only).

{"kind":"start"}                    a process came up (counts start behaviours of a script)
{"kind":"conversation","id":"…"}    a conversation begins; what stands before it belongs to an older one
{"kind":"step"}                     a prompt arrived (counts behaviours of a script)
{"kind":"user"|"assistant"|"tool","text":"…"}
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NAME = "demo.jsonl"


class History:
    """Append-only. A torn last line is left in place and skipped."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._path = path
        self._file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        data = self._file.read() or b""
        if data and not data.endswith(b"\n"):
            self._file.write(b"\n")
        self._all = [line for raw in data.split(b"\n") if (line := _parsed(raw)) is not None]
        self.append("start")

    def close(self) -> None:
        """The file stays."""
        self._file.close()

    @property
    def starts(self) -> int:
        """Processes so far, this one included."""
        return sum(line["kind"] == "start" for line in self._all)

    @property
    def steps(self) -> int:
        """Prompts so far in this conversation."""
        return sum(line["kind"] == "step" for line in self.conversation())

    def open(self, conversation_id: str, *, resume: bool) -> None:
        """Go on with the newest conversation or begin one. LookupError: another one, or none, is there."""
        here = [line["id"] for line in self._all if line["kind"] == "conversation"]
        if not resume:
            self.append("conversation", id=conversation_id)
        elif here[-1:] != [conversation_id]:
            raise LookupError(f"the conversation {conversation_id} is not in {self._path}")

    def append(self, kind: str, **rest: str) -> None:
        line = {"kind": kind, **rest}
        self._all.append(line)
        self._file.write(json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n")

    def conversation(self) -> list[dict[str, Any]]:
        """The lines of the newest conversation."""
        begins = [at for at, line in enumerate(self._all) if line["kind"] == "conversation"]
        return self._all[begins[-1] + 1 :] if begins else []

    def texts(self, kind: str) -> list[str]:
        """What the user, the assistant or the tools said, oldest first."""
        return [str(line.get("text", "")) for line in self.conversation() if line["kind"] == kind]


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None
