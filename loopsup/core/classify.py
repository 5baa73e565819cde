"""Why did a response end, and is that worth another request?

Rules. A provider's words are judged by text alone: who it is and how one logged in do not matter. Only the
first `MAX_TEXT` characters are looked at, and no pattern can take more than linear time on them. What costs
money or needs a person comes first: a message that speaks of billing is terminal, whatever else it says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

MAX_TEXT = 4096  # characters of an error message; a provider's sentence stands at its beginning


class Boundary(StrEnum):
    """Where the agent asks. TURN: the model's turn is over. SETTLE: nothing automatic of the agent's own is left."""

    TURN = "turn"
    SETTLE = "settle"


class Kind(StrEnum):
    """What is recovered, as events and status name it."""

    LENGTH = "length"
    STREAM = "stream"
    EMPTY = "empty"
    TOOL_TAIL = "tool_tail"
    USAGE_LIMIT = "usage_limit"  # the provider says when
    USAGE_POLL = "usage_poll"  # it does not


@dataclass(frozen=True, slots=True)
class Interruption:
    """A finalised turn of the main agent, as the adapter saw it end.

    `stop`: `stop`, `toolUse`, `length`, `error` or `aborted`. `error`: the provider's words. `substance`: there
    is text or (also redacted) reasoning in it. `tail`: the tools whose completed results end the turn; empty if
    something else does. `natural`: the agent makes the next request anyway, or input waits inside it.
    `runnable`: without what would be omitted the context ends in something a model can answer. `overflow`: the
    agent holds it for an overflow of its input. `retry_after_ms`: a `retry-after` of the provider that is not in
    `error`; `provider`: whose limits they are. `advised_ms`: how long the provider asks to wait, which the adapter
    leaves to others to find out.
    """

    boundary: Boundary
    stop: str
    error: str = ""
    substance: bool = True
    tail: tuple[str, ...] = ()
    natural: bool = False
    runnable: bool = True
    overflow: bool = False
    retry_after_ms: int | None = None
    advised_ms: int | None = None
    provider: str = ""


TERMINAL_TOOLS = frozenset({"loop_control", "task_complete"})  # they end a run on purpose


def kind_of(turn: Interruption) -> Kind | None:
    """What kind of interruption this is; None: a turn that is respected as it stands."""
    if turn.overflow:
        return None
    match turn.stop:
        case "length":
            return Kind.LENGTH
        case "error":
            return kind_of_error(turn.error)
        case "stop" | "toolUse":
            if turn.tail:
                return None if TERMINAL_TOOLS.intersection(turn.tail) else Kind.TOOL_TAIL
            return None if turn.substance else Kind.EMPTY
        case _:
            return None  # aborted, pending, deferred: somebody else's


def kind_of_error(text: str) -> Kind | None:
    """The kind of a provider's error message. USAGE_POLL: a usage limit, before its guidance is read."""
    words = text[:MAX_TEXT]
    if _says(_BILLING, words):
        return None
    if _says(_OVERFLOW, words) and not _says(_THROTTLED, words):
        return None
    if _says(_PERMANENT, words):
        return None
    if _says(_OUTPUT_CAP, words):
        return Kind.LENGTH
    if _says(_USAGE_LIMIT, words) or _says(_LONG_WAIT, words):
        return Kind.USAGE_POLL
    return Kind.STREAM if _says(_TRANSIENT, words) else None


def _any(*patterns: str) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


@cache  # at the first error: compiling them all takes longer than most commands
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


def _says(pattern: str, words: str) -> bool:
    return _compiled(pattern).search(words) is not None


# No amount of waiting brings money (C-50).
_BILLING = _any("insufficient_quota", "quota exceeded", "out of budget", "billing", "available balance")

# The input is too long: the agent's compaction has that (C-60).
_OVERFLOW = _any(
    r"prompt (?:is )?too long",
    r"prompt exceeds max length",
    r"request_too_large",
    r"input is too long",
    r"exceeds the (?:available )?context (?:window|size)",
    r"exceeds (?:the )?(?:model'?s )?maximum context length",
    r"context[_ ]window[_ ]exceed",
    r"exceeds the maximum (?:number of tokens|allowed input)",
    r"maximum (?:prompt|context) length",
    r"reduce the length of the messages",
    r"exceeds the limit of \d",
    r"greater than the context length",
    r"exceeded model token limit",
    r"context[_ ]length[_ ]exceeded",
    r"too many tokens",
    r"^413(?!\d)",
)
_THROTTLED = _any("rate limit", "too many requests", "throttl")

# Trying again gives the same answer (C-55, C-57). Numbers must not be part of a longer word or number.
_PERMANENT = _any(
    r"(?<![a-z0-9])40[123](?![a-z0-9])",
    r"authenticat",
    r"unauthori[sz]ed",
    r"api[ _-]?key",
    r"invalid (?:access |auth |bearer )?token",
    r"permission",
    r"forbidden",
    r"content[ _-]?(?:filter|policy)",
    r"safety",
    r"policy violation",
    r"invalid[ _-](?:request|argument)",
    r"not[ _]found",
    r"not supported",
    r"unsupported",
)

# A cap on the output that a provider reports as an error (C-15).
_OUTPUT_CAP = _any(
    r"max(?:imum)?[ _]output[ _]tokens?",
    r"output[ _]token[ _]limit",
    r"finish[_ ]reason:? ?\"?(?:length|max_tokens)",
    r"(?:response|output) (?:was |is )?truncated",
)

_USAGE_LIMIT = _any(r"usage[ _-]?limit")
_COUNT = r"(?:[-+0-9.,]{1,40}|[-+]?(?:nan|inf(?:inity)?))"
# "Try again in 5 min", also with a count nobody can use: longer than any back-off, so it is a limit (C-48).
_LONG_WAIT = _any(r"(?:try again|retry) in[ \t]{1,4}~?[ \t]{0,4}" + _COUNT + r"[ \t]{0,4}(?:min|hour|h\b|day)")

_TRANSIENT = _any(
    r"overloaded",
    r"server_busy",
    r"currently busy",
    r"high demand",
    r"at capacity",
    r"rate.?limit",
    r"too many requests",
    r"(?<![a-z0-9])(?:429|500|502|503|504|520|524|529)(?![a-z0-9])",
    r"service.?(?:is.?)?(?:temporarily.?)?unavailable",
    r"server.?error",
    r"internal.?error",
    r"provider.?returned.?(?:an.?)?error",
    r"upstream",
    r"stream was interrupted",
    r"http/?2 ",
    r"network.?error",
    r"connection.?(?:error|refused|lost|closed|reset)",
    r"other side closed",
    r"fetch failed",
    r"getaddrinfo",
    r"(?<![a-z0-9_])(?:ECONNRESET|ECONNABORTED|ECONNREFUSED|ETIMEDOUT|EPIPE|ENOTFOUND|EAI_AGAIN)(?![a-z0-9_])",
    r"reset before headers",
    r"socket (?:hang up|connection was closed)",
    r"timed? ?out",
    r"timeout",
    r"terminated",
    r"websocket",
    r"ended (?:without|before)",
    r"stream (?:ended|disconnected|closed)",
    r"cut short",
    r"retry delay",
    r"(?:you can|please) retry your request",
    r"try your request again",
    r"ResourceExhausted",
)
