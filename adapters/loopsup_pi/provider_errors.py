"""What kind of error the provider's words tell of, for the event log."""

from __future__ import annotations

from typing import Any

from loopsup.wire import events as ev

# The first match wins; Pi gives the provider's words only ("429: {…}").
_KINDS = (
    ("overflow", ("context_length", "context length", "too many tokens", "prompt is too long", "context window")),
    ("rate_limit", ("429", "rate limit", "rate_limit", "too many requests", "overloaded", "quota")),
    ("auth", ("401", "403", "api key", "unauthorized", "authentication", "billing")),
    (
        "network",
        ("connection", "network", "timed out", "timeout", "terminated", "fetch failed", "stream ended"),
    ),
)


def classify(message: str) -> dict[str, Any]:
    """An error of the vocabulary from the provider's words."""
    low = message.lower()
    kind = next((kind for kind, words in _KINDS if any(word in low for word in words)), "other")
    return {"kind": kind, "message": ev.bounded(message)}
