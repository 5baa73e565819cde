"""A stand-in for `pi --mode rpc` that misbehaves on demand. The first line is completed by `install`.

`FAKE_PI` names what goes wrong: "" nothing, "mute" no answer to `get_state`, "no_hello", "no_tool",
"silent" no answer to a prompt, "late" the answer comes after the next request, "garbage" noise on stdout,
"deaf" ignores an abort, its closed input and SIGTERM, "hasty" its tool calls before the prompt is answered.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

MODE = os.environ.get("FAKE_PI", "")


def install(folder: Path) -> Path:
    """An executable that runs this file."""
    path = folder / "fake-pi"
    path.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def say(*records: dict[str, Any]) -> None:
    """All in one write: they arrive in one chunk."""
    os.write(1, b"".join(json.dumps(record).encode() + b"\n" for record in records))


def hello() -> socket.socket:
    setup = json.loads(os.environ["LOOPSUP_PI_SETUP"])
    link = socket.socket(socket.AF_UNIX)
    link.connect(setup["socket"])
    record = {"type": "hello", "token": setup["token"], "tool": MODE != "no_tool", "marker": None}
    link.sendall(json.dumps(record).encode() + b"\n")
    return link


def call_first(link: socket.socket) -> None:
    """Call `loop_control`, and wait until the call was read: the answer to the record behind it says so."""
    call = {"type": "decide", "id": 1, "call": "c1", "arguments": {"decision": "complete"}}
    for record in (call, {"type": "forking", "id": 2, "what": "x"}):
        link.sendall(json.dumps(record).encode() + b"\n")
    link.recv(4096)


def run(text: str) -> list[dict[str, Any]]:
    """A whole run, settled at once."""
    message = {"role": "assistant", "stopReason": "stop", "content": [{"type": "text", "text": text}]}
    return [
        {"type": "agent_start"},
        {"type": "message_start", "message": {"role": "assistant", "stopReason": "pending"}},
        {"type": "message_end", "message": message},
        {"type": "turn_end"},
        {"type": "agent_settled", "aborted": False},
    ]


def main() -> None:
    link = None if MODE == "no_hello" else hello()
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    late: list[dict[str, Any]] = []
    for line in sys.stdin:
        command = json.loads(line)
        answer = {"type": "response", "id": command["id"], "command": command["type"], "success": True}
        match command["type"]:
            case "get_state" if MODE != "mute":
                if MODE == "garbage":
                    os.write(1, b"oops\n\xff\xfe\n[]\nnull\n\n")
                say({**answer, "data": {"sessionId": "s-1", "sessionFile": None, "isStreaming": False}})
            case "prompt" if MODE == "late" and not late:
                late = [{**answer, "data": {"disposition": "started"}}]
            case "prompt" if MODE == "deaf":
                say({**answer, "data": {"disposition": "started"}}, {"type": "agent_start"})
            case "prompt" if MODE != "silent":
                if late:
                    say(*late, *run("late"))
                if MODE == "hasty" and link is not None:
                    call_first(link)
                say({**answer, "data": {"disposition": "started"}}, *run(command["message"]))
    while MODE == "deaf":
        signal.pause()
    del link


if __name__ == "__main__":
    main()
