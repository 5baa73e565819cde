"""How a prompt ended: the agent's stop reason, error and figures in the vocabulary's words.

A stop reason is only noted, never trusted: agents say `end_turn` after a cut stream, an exhausted quota or an
overflow. What an iteration came to is what its decision says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopsup.wire import events as ev
from loopsup_acp.client import RequestFailedError

AUTH_REQUIRED = -32000

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason` is a stopReason of the vocabulary."""

    reason: str
    error: dict[str, str] | None = None
    usage: dict[str, Any] | None = None


_REASONS = {"end_turn": "stop", "max_tokens": "length", "cancelled": "aborted"}
_FAULTS = {
    "refusal": "the model refused to go on",
    "max_turn_requests": "the agent stopped at its own limit of model requests",
}

# The first match wins; agents pass the provider's words on.
_KINDS = (
    ("overflow", ("contextoverflow", "context_length", "context window", "prompt is too long", "ran out of room")),
    ("rate_limit", ("429", "rate limit", "rate_limit", "overloaded", "quota")),
    ("auth", ("401", "403", "api key", "unauthorized", "authentication", "log in")),
    ("network", ("connection", "network", "timed out", "timeout", "terminated", "fetch failed")),
)


def answered(result: Record, *, tokens: bool) -> Outcome:
    """The agent answered the prompt."""
    stop = str(result.get("stopReason"))
    usage = _tokens(result) if tokens else None
    if stop in _FAULTS:
        return Outcome("error", {"kind": "other", "message": _FAULTS[stop]}, usage)
    return Outcome(_REASONS.get(stop, "stop"), None, usage)


def failed(error: RequestFailedError) -> Outcome:
    """It answered with an error."""
    return Outcome("error", {"kind": _kind(error), "message": ev.bounded(words(error))})


def words(error: RequestFailedError) -> str:
    """An error for people: the message, and what is in its data where that is text."""
    data: Record = error.data if isinstance(error.data, Mapping) else {"details": error.data}
    more = next((data[key] for key in ("details", "message", "errorMessage") if isinstance(data.get(key), str)), None)
    return f"{error} ({more})" if more and more not in str(error) else str(error)


def _kind(error: RequestFailedError) -> str:
    if error.code == AUTH_REQUIRED:
        return "auth"
    low = f"{error} {json.dumps(error.data, ensure_ascii=False, default=str)}".lower()
    return next((kind for kind, signs in _KINDS if any(sign in low for sign in signs)), "other")


def _tokens(result: Record) -> dict[str, Any] | None:
    """Of the whole turn; Gemini has a place of its own for them."""
    usage = result.get("usage")
    if isinstance(usage, Mapping):
        names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens")
        values = [_count(usage.get(name)) for name in names]
        return dict(zip(("input", "output", "cacheRead", "cacheWrite"), values, strict=True))
    node: object = result
    for key in ("_meta", "quota", "token_count"):
        node = node.get(key) if isinstance(node, Mapping) else None
    if isinstance(node, Mapping):
        return {"input": _count(node.get("input_tokens")), "output": _count(node.get("output_tokens"))}
    return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
