"""What an interruption is, by its shape and by the provider's words (C-50, C-55..C-62)."""

from __future__ import annotations

import time

import pytest

from loopsup.core.classify import MAX_TEXT, Boundary, Interruption, Kind, kind_of, kind_of_error


@pytest.mark.parametrize(
    "text",
    [
        "usage limit reached; check billing",
        "429 insufficient_quota",
        "The usage limit has been reached: quota exceeded. Try again in 5 min",
        "you are out of budget",
        "enable your available balance",
        "401: bad credentials; please retry your request",
        "Invalid API key; please retry your request",
        "403 Forbidden",
        "402: payment required",
        "permission denied",
        "Provider finish_reason: content_filter",
        "blocked by our safety system",
        "invalid_request_error: bad tool schema",
        "model not found",
        "this model is not supported",
        "context_length_exceeded; please retry",
        "prompt is too long: 213462 tokens > 200000 maximum",
        '413: {"error":"request too large"}',
        "something nobody has ever seen",
        "Request was aborted",
        "",
    ],
)
def test_terminal_words(text: str) -> None:
    assert kind_of_error(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '503: {"message":"overloaded"}',
        '429: {"message":"slow down"}',
        "fetch failed",
        "Stream ended without finish_reason",
        "terminated: Body Timeout Error (UND_ERR_BODY_TIMEOUT)",
        "Request timed out.",
        "read ECONNRESET",
        "getaddrinfo ENOTFOUND api.example.org",
        "socket hang up",
        "Rate limit reached. Try again in 20 seconds",
        "429 too many requests, retry in 500 ms",
        "ThrottlingException: Too many tokens, rate limit",
    ],
)
def test_transient_words(text: str) -> None:
    assert kind_of_error(text) is Kind.STREAM


@pytest.mark.parametrize("number", ["req_500abc", "id 15003", "x4290", "1429 bytes"])
def test_a_number_inside_another_is_no_status(number: str) -> None:
    assert kind_of_error(number) is None


@pytest.mark.parametrize(
    "text",
    [
        "Codex error: The usage limit has been reached",
        "429: usage_limit_reached",
        "Try again in 5 min",
        "Retry in ~12 mins",
        "Try again in -5 min",
        "Try again in 2 hours",
        "Try again in 1.5 min",
        "Try again in NaN minutes",
        "You have hit your usage limit. Try again soon",
    ],
)
def test_limits(text: str) -> None:
    assert kind_of_error(text) is Kind.USAGE_POLL


@pytest.mark.parametrize(
    "text", ["stopped: max_output_tokens", "the response was truncated", "finish_reason: length"]
)
def test_an_output_cap_that_came_as_an_error(text: str) -> None:
    assert kind_of_error(text) is Kind.LENGTH


def ended(stop: str, **more: object) -> Interruption:
    return Interruption(Boundary.SETTLE, stop, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (ended("stop"), None),
        (ended("stop", substance=False), Kind.EMPTY),
        (ended("toolUse", tail=("note",)), Kind.TOOL_TAIL),
        (ended("stop", substance=False, tail=("note",)), Kind.TOOL_TAIL),
        (ended("toolUse", tail=("loop_control",)), None),
        (ended("toolUse", tail=("note", "task_complete")), None),
        (ended("length"), Kind.LENGTH),
        (ended("length", overflow=True), None),
        (ended("error", error="fetch failed"), Kind.STREAM),
        (ended("error", error="fetch failed", overflow=True), None),
        (ended("aborted", error="fetch failed"), None),
        (ended("pending"), None),
        (ended("deferred", substance=False), None),
    ],
)
def test_shapes(turn: Interruption, kind: Kind | None) -> None:
    assert kind_of(turn) is kind


@pytest.mark.parametrize("unit", ["try again in ", "1", "~ ", "-", "a", "429", "usage", "\t", "exceeds the "])
def test_the_cost_is_bounded_however_long_the_text(unit: str) -> None:
    text = unit * (4_000_000 // len(unit))
    begun = time.process_time()  # not the clock on the wall: others use this machine, too
    kind_of_error(text)
    assert time.process_time() - begun < 1  # a hundredth of it; what is not bounded takes minutes


def test_words_beyond_the_bound_are_not_looked_at() -> None:
    assert kind_of_error("." * MAX_TEXT + "fetch failed") is None
