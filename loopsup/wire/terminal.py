"""The lines of a `terminal` stream: an agent's own screen, and the keyboard of a person attached to it.

After the response to the request `{"verb":"terminal","args":{"rows":24,"cols":80}}` each side sends JSON lines with
one key. From the supervisor:

    {"output":"base64"}      what the terminal shows next
    {"absent":"sentence"}    the program is not running (now); a picture follows when it is
    {"closed":"reason"}      the last line when the session ends

and from the client:

    {"input":"base64"}       what was typed
    {"size":[rows,cols]}     the terminal has another size now
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from loopsup.errors import UsageError

MAX_SIDE = 10_000  # rows or columns; no terminal has more


@dataclass(frozen=True, slots=True)
class Output:
    data: bytes


@dataclass(frozen=True, slots=True)
class Absent:
    why: str


@dataclass(frozen=True, slots=True)
class Closed:
    reason: str


@dataclass(frozen=True, slots=True)
class Input:
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized:
    rows: int
    cols: int


FromSupervisor = Output | Absent | Closed
FromClient = Input | Resized


def encode(line: FromSupervisor | FromClient) -> bytes:
    match line:
        case Output(data):
            return _line("output", base64.b64encode(data).decode("ascii"))
        case Absent(why):
            return _line("absent", why)
        case Closed(reason):
            return _line("closed", reason)
        case Input(data):
            return _line("input", base64.b64encode(data).decode("ascii"))
        case Resized(rows, cols):
            return _line("size", [rows, cols])


def from_supervisor(line: bytes) -> FromSupervisor:
    """UsageError for anything else."""
    obj = _object(line)
    if "output" in obj:
        return Output(_bytes(obj["output"]))
    if isinstance(obj.get("absent"), str):
        return Absent(obj["absent"])
    if isinstance(obj.get("closed"), str):
        return Closed(obj["closed"])
    raise UsageError("this is not a line of a terminal stream")


def from_client(line: bytes) -> FromClient:
    """UsageError for anything else."""
    obj = _object(line)
    if "input" in obj:
        return Input(_bytes(obj["input"]))
    return Resized(*size(obj.get("size")))


def size(value: object) -> tuple[int, int]:
    """[rows, cols]. UsageError."""
    match value:
        case [int() as rows, int() as cols] if 0 < rows <= MAX_SIDE and 0 < cols <= MAX_SIDE:
            return rows, cols
        case _:
            raise UsageError("a terminal's size is [rows, cols]")


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]  # what is no text is a TypeError
    except (TypeError, ValueError, binascii.Error) as error:
        raise UsageError("not base64") from error


def _line(key: str, value: object) -> bytes:
    return json.dumps({key: value}, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    try:
        obj = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError("not JSON") from error
    if not isinstance(obj, dict):
        raise UsageError("not a JSON object")
    return obj
