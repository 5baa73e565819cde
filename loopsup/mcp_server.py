"""The MCP server that carries `loop_control` to the supervisor (`loopsup mcp`; stdio).

Rules. Standard library only and nothing of loopsup: agents start it by file path with `python -I -S`, and some
begin a turn without waiting for it, so it must be up in a tenth of a second. It decides nothing: the arguments go
to the supervisor's socket with the token of its environment, and the supervisor's verdict comes back as the
tool's result, so that the model can correct itself. It says hello there when it comes up and when its tools
are listed. Lines are split at LF only; the client's protocol version is echoed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

VERSION = "1"
PROTOCOL = "2025-06-18"  # spoken where the client names none
HELLO_TIMEOUT_S = 2.0  # the supervisor answers in milliseconds; its tools must be listed all the same
VERDICT_TIMEOUT_S = 30.0  # one fsync of the journal; a disk that takes longer is broken
MAX_LINE = 8 * 1024 * 1024  # of the request and of the answer; a decision has at most 128 Ki characters
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602

TOOL: dict[str, Any] = {
    "name": "loop_control",
    "title": "Report the decision of this loop iteration",
    "description": (
        "Ends a loop iteration. Call it as your last action of every message that starts with [loop iteration] or "
        "[loop reminder]: continue (wake me again later), complete (the objective is reached), fail (it cannot be "
        "reached) or block (a person is needed). Once it was accepted, end your turn. Not for ordinary messages."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "enum": ["continue", "complete", "fail", "block"]},
            "summary": {"type": "string", "description": "What is the case now, in one or two sentences."},
            "evidence": {
                "type": "string",
                "description": "Observed state, a command that was run, or a reference consulted.",
            },
            "nextDelay": {
                "type": "string",
                "description": (
                    "Only with continue, and only where the envelope says that the rhythm is auto: when to wake "
                    "again, as a duration such as 90s, 10m or 2h."
                ),
            },
        },
        "required": ["decision", "summary", "evidence"],
        "additionalProperties": False,
    },
    # It changes nothing outside loopsup. Codex rejects tools without the hint where it may not ask.
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    "_meta": {"anthropic/alwaysLoad": True},  # Claude hides MCP tools behind a search without it
}


class RefusedError(Exception):
    """The supervisor's words, for the model."""


class UnreachableError(Exception):
    """No supervisor answered, and why."""


def main() -> int:
    """Serve standard input until it ends."""
    tell("started", os.environ)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while line := stdin.readline(MAX_LINE):
        answer = answer_line(line, os.environ)
        if answer is None:
            continue
        try:
            stdout.write(json.dumps(answer, ensure_ascii=True).encode("ascii") + b"\n")
            stdout.flush()
        except BrokenPipeError:
            break
    os._exit(0)  # the client may have closed our output: nothing is left to flush


def answer_line(line: bytes, env: Mapping[str, str]) -> dict[str, Any] | None:
    """The answer to one line; None for a notification or a response."""
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return _error(None, PARSE_ERROR, "this line is not JSON")
    if not isinstance(message, dict):
        return _error(None, INVALID_REQUEST, "not a JSON-RPC message (batches are not supported)")
    identity, method, params = message.get("id"), message.get("method"), message.get("params")
    if method is None or "id" not in message:
        return None
    params = params if isinstance(params, dict) else {}
    match method:
        case "initialize":
            return _result(identity, _initialize(params))
        case "ping":
            return _result(identity, {})
        case "tools/list":
            tell("listed", env)
            return _result(identity, {"tools": [TOOL]})
        case "tools/call":
            if params.get("name") != TOOL["name"]:
                return _error(identity, INVALID_PARAMS, f"there is no tool {params.get('name')!r}")
            return _result(identity, _call(params.get("arguments"), env))
        case _:
            return _error(identity, METHOD_NOT_FOUND, f"unknown method {method!r}")


def tell(stage: str, env: Mapping[str, str]) -> None:
    """Hello. Where nobody hears it, the call itself will say so."""
    try:
        ask({"verb": "hello", "args": {"stage": stage}}, env, HELLO_TIMEOUT_S)
    except (RefusedError, UnreachableError) as error:
        sys.stderr.write(f"loopsup mcp: {error}\n")
        sys.stderr.flush()


def _call(arguments: object, env: Mapping[str, str]) -> dict[str, Any]:
    """The verdict as a tool result."""
    failed = True
    try:
        text = ask({"verb": "decide", "args": {"arguments": arguments}}, env, VERDICT_TIMEOUT_S)
        failed = False
    except RefusedError as error:
        text = str(error)
    except UnreachableError as error:
        text = f"The decision was not recorded: {error}."
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def ask(request: dict[str, Any], env: Mapping[str, str], timeout_s: float) -> str:
    """One request to the supervisor (`loopsup.wire.control`); its message. RefusedError, UnreachableError."""
    path, token = env.get("LOOPSUP_SOCKET"), env.get("LOOPSUP_TOKEN")
    if not path or not token:
        raise UnreachableError("no loop of loopsup runs here (LOOPSUP_SOCKET and LOOPSUP_TOKEN are not set)")
    request["v"] = 1
    request["args"]["token"] = token
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(path)
            connection.sendall(json.dumps(request, ensure_ascii=True).encode("ascii") + b"\n")
            response = json.loads(_read_line(connection))
    except TimeoutError as error:
        raise UnreachableError(f"the supervisor did not answer within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise UnreachableError(f"the supervisor does not answer ({error})") from error
    if response.get("ok") is not True:
        raise RefusedError(str((response.get("error") or {}).get("message", "refused")))
    return str(response.get("message", ""))


def _read_line(connection: socket.socket) -> bytes:
    data = bytearray()
    while b"\n" not in data and len(data) <= MAX_LINE:
        if not (chunk := connection.recv(64 * 1024)):
            break
        data += chunk
    return bytes(data)


def _initialize(params: Mapping[str, Any]) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if isinstance(asked, str) else PROTOCOL,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "loopsup", "version": VERSION},
    }


def _result(identity: object, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def _error(identity: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}


if __name__ == "__main__":
    sys.exit(main())
