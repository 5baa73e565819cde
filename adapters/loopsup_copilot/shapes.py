"""Values of Copilot's events in the shapes of the vocabulary. Pure; anything malformed becomes something harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loopsup.wire import events as ev

# Copilot's own word for what went wrong, where it has one.
_TYPES = {
    "rate_limit": "rate_limit",
    "quota": "rate_limit",
    "authentication": "auth",
    "authorization": "auth",
    "context_limit": "overflow",
}
# Else the provider's words; the first match wins.
_KINDS = (
    ("overflow", ("context_length", "context length", "too many tokens", "prompt is too long", "prompt budget")),
    ("rate_limit", ("rate limit", "rate_limit", "too many requests", "overloaded", "quota")),
    ("auth", ("api key", "unauthorized", "authentication", "oauth token", "billing")),
    (
        "network",
        ("connection", "connect to", "network", "timed out", "timeout", "stream", "interrupted", "fetch failed"),
    ),
)
_STATUS = {401: "auth", 403: "auth", 413: "overflow", 429: "rate_limit"}


def classify(error_type: str, message: str, status: object) -> dict[str, Any]:
    """An error of the vocabulary: kind and message."""
    words = _unwrapped(message) or "the request failed"
    low = words.lower()
    kind = _TYPES.get(error_type)
    if kind is None and isinstance(status, int):
        kind = _STATUS.get(status)
    if kind is None:
        kind = next((kind for kind, known in _KINDS if any(word in low for word in known)), "other")
    if isinstance(status, int) and str(status) not in words:
        words = f"{status} {words}"
    return {"kind": kind, "message": ev.bounded(words)}


def _unwrapped(message: str) -> str:
    """`model.call_failure` quotes the provider's JSON."""
    try:
        found = json.loads(message)
    except ValueError:
        return message.strip()
    if isinstance(found, Mapping) and isinstance(found.get("message"), str):
        return str(found["message"])
    return found if isinstance(found, str) else message.strip()


def usage_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens; Copilot's `cost` counts premium requests, not money."""
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cacheRead": "cacheReadTokens",
        "cacheWrite": "cacheWriteTokens",
    }
    return {name: _count(data.get(theirs)) for name, theirs in names.items()}


def _count(raw: object) -> int:
    return int(raw) if isinstance(raw, int | float) else 0


def bounded_arguments(raw: object) -> object:
    """As they are, or their bounded JSON text where they are large (a file to be written)."""
    text = json.dumps(raw, ensure_ascii=False)
    return raw if len(text) <= ev.MAX_PAYLOAD_TEXT else ev.bounded(text)


def as_object(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def as_objects(raw: object) -> list[Mapping[str, Any]]:
    return [as_object(part) for part in raw] if isinstance(raw, list) else []
