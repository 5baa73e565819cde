"""A conversation that is over, read from a file: an `events.jsonl` of loopsup or of the Copilot CLI, or any text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loopsup.core.rules import TEXT, THINKING, Source, Stream
from loopsup.errors import UsageError
from loopsup.matching.replay import Said, Turn
from loopsup.wire import events as words

MAX_BYTES = 256 * 1024 * 1024  # far beyond any conversation; larger files are something else
REQUESTS = frozenset({"user", "loop", None})  # origins of a new request (Copilot's log names none)
REASONING = "assistant.reasoning"  # Copilot's


def transcript(path: Path) -> Iterator[Turn | Said]:
    """What is in it, in order. UsageError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES} bytes, so it is no transcript")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if _event(first) is None:
        yield Turn(1, "1", fresh=True)
        yield Said(1, TEXT, text, lines=True)
        return
    for number, line in enumerate(lines, start=1):
        event = _event(line)
        if event is not None and not event.get("agentId"):
            yield from _parts(number, str(event["type"]), event["data"])


def _event(line: str) -> Mapping[str, Any] | None:
    try:
        obj = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(obj, dict) and isinstance(obj.get("type"), str) and isinstance(obj.get("data"), dict)
    return obj if known else None


def _parts(line: int, kind: str, data: Mapping[str, Any]) -> Iterator[Turn | Said]:
    match kind:
        case words.USER_MESSAGE:
            if data.get("origin") in REQUESTS:
                yield Turn(line, "", fresh=True)
        case words.TURN_START:
            yield Turn(line, str(data.get("turnId", "")))
        case words.ASSISTANT_MESSAGE:
            yield Said(line, TEXT, _text(data))
            for request in data.get("toolRequests") or ():
                if isinstance(request, dict):
                    name = str(request.get("toolName") or request.get("name") or "")
                    stream = Stream(Source.TOOL, name, str(request.get("toolCallId") or line))
                    yield Said(line, stream, arguments=request.get("arguments"))
        case _ if kind == REASONING:
            yield Said(line, THINKING, _text(data))


def _text(data: Mapping[str, Any]) -> str:
    return str(data.get("text") or data.get("content") or "")
