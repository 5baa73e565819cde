"""The control protocol: one JSON object a line over the session's Unix socket.

A client sends one request and reads one response:

    {"v":1,"verb":"pause","args":{}}
    {"v":1,"ok":true,"message":"…","warnings":[],"status":{…status object…}}
    {"v":1,"ok":false,"error":{"exit":4,"kind":"refused","message":"…"}}

`follow` keeps the connection: after the response come lines until the session ends or the client leaves,
each with exactly one of the keys

    {"event":{…an object of events.jsonl…}}      also the live-only ones
    {"status":{…status object…}}                 after every change of the loop
    {"closed":"reason"}                          the last line when the session ends

`follow` takes `{"since": seq}`: stored events after that sequence number are sent first, as far as the
supervisor still has them in memory (`FOLLOW_BACKLOG`); a client reads older ones from the file. `wait` answers
when the loop has left waiting, queued and running. Both count as a follower: the session stays open for them.

Arguments by verb (all optional unless said):

    ping status pause resume stop abort close wait
    reload    answered when the session is closed for it; the same process then opens it again as a new program
    enable    on: bool, whether a unit of the machine opens the session again after a reboot
    tick      fires the wake of a loop with the driver `tick`, if it is due; the message says what became of it
    reap      from another session, where more live than are wanted: close, unless somebody needs this one
    start     objective (required), policy (required: {rhythm: "auto" or ms, minDelayMs, maxDelayMs, forMs,
              maxIterations, misfire: "once", "skip" or ms}), afterMs, driver: "resident" or "tick",
              continuity {enabled, maxResumes: number or "unlimited", streamDelayMs}, park: bool
    update    policy with any subset of those keys, continuity {enabled}; at least one of the two
    heartbeat action (required): start (with everyMs, forMs and ask: bool), pause, resume or stop
    say       text (required), wait: bool, autopilot: bool, maxReminders: int
    follow    since: int
    terminal  rows, cols (required): a stream in both directions, see `wire.terminal`
    answer    allow: bool (required), id

and from the agent's side, each with the token (required) its process was started with:

    hello     stage (required): "started" or "listed", how far the agent's MCP client has come
    decide    arguments (required): those of a `loop_control` call. The message is the verdict, for the model;
              a call that was not accepted is a `refused` error

A supervisor process reads one launch request (`Launch` below, one line) from standard input and answers with
one response line on the descriptor it was given, once `first` has been carried out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopsup.errors import LoopsupError, UsageError, from_kind

VERSION = 1
MAX_OBJECTIVE = 1024 * 1024  # bytes of UTF-8 (L-05)
# An objective escaped by JSON grows at most sixfold and stands twice in a status (its own and the attention
# event's); so do a decision's two texts of 64 Ki characters, at most twelvefold.
MAX_LINE = 20 * MAX_OBJECTIVE
ANSWER_TIMEOUT_S = 2.0  # a supervisor that does not answer a `status` within this is not responding
# One that is asked to do something may be in a slow fsync just then: a person's `stop` is worth that wait.
BUSY_TIMEOUT_S = 10.0
FOLLOW_BACKLOG = 1000  # events kept in memory for a client that read the file a moment ago

VERBS = frozenset(
    {
        "ping",
        "status",
        "start",
        "pause",
        "resume",
        "stop",
        "update",
        "abort",
        "wait",
        "follow",
        "terminal",
        "say",
        "answer",
        "close",
        "reap",
        "hello",
        "decide",
        "tick",
        "heartbeat",
        "reload",
        "enable",
    }
)
AGENT_VERBS = frozenset({"ping", "status", "hello", "decide"})  # what a process below the agent may ask
EARLY_VERBS = frozenset({"ping", "status", "hello", "decide"})  # answered while a new session's agent comes up
CLOSING = "the session is being closed"  # what a `ping` is answered with by a supervisor that goes
SOCKET_VARIABLE = "LOOPSUP_SOCKET"  # these two are in the environment of an agent's tool carrier
TOKEN_VARIABLE = "LOOPSUP_TOKEN"  # noqa: S105 (the name of a variable)
AGENT_MARK = "LOOPSUP_AGENT"  # set for the agent and all it runs: they may not decide for the person


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request."""

    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """The answer. `error` None: done."""

    status: Mapping[str, Any] | None = None
    message: str = ""
    warnings: tuple[str, ...] = ()
    error: LoopsupError | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """What a new supervisor process shall serve.

    `name`: the entry under `sessions/`. `open`: "new" (the folder was made by the launcher and holds
    session.toml), or "reopen" (a folder with a journal). `first`: the command to carry out first; where it
    fails on a new session, the supervisor removes the session again and ends. `foreground`: end when the loop has
    left waiting, queued and running, unless `keep`, and print the status then, as JSON where `as_json` says so.
    `hosted`: the agent runs already, in a person's terminal; before the response comes a line {"invite": "…"} with
    what it needs to connect, and without it no agent is started.
    """

    name: str
    open: str
    first: Request | None
    allow_all: bool = False
    foreground: bool = False
    keep: bool = False
    hosted: bool = False
    as_json: bool = False


def encode_request(request: Request) -> bytes:
    return _line({"v": VERSION, "verb": request.verb, "args": dict(request.args)})


def decode_request(line: bytes) -> Request:
    """UsageError for anything that is not a request of this version."""
    obj = _object(line)
    verb, args = obj.get("verb"), obj.get("args", {})
    if obj.get("v") != VERSION or not isinstance(verb, str) or not isinstance(args, dict):
        raise UsageError("this is not a control request of version 1")
    if verb not in VERBS:
        raise UsageError(f"unknown control verb {verb!r}")
    return Request(verb, args)


def encode_response(response: Response) -> bytes:
    if response.error is not None:
        return _line({"v": VERSION, "ok": False, "error": error_object(response.error)})
    return _line(
        {
            "v": VERSION,
            "ok": True,
            "message": response.message,
            "warnings": list(response.warnings),
            "status": response.status,
        }
    )


def decode_response(line: bytes) -> Response:
    """UsageError if the line is no response; an error response becomes the error it stands for."""
    obj = _object(line)
    if obj.get("ok") is True:
        return Response(obj.get("status"), str(obj.get("message", "")), tuple(map(str, obj.get("warnings", ()))))
    error = obj.get("error")
    if obj.get("ok") is not False or not isinstance(error, dict):
        raise UsageError("this is not a control response of version 1")
    return Response(error=from_kind(str(error.get("kind")), str(error.get("message"))))


def encode_launch(launch: Launch) -> bytes:
    first = None if launch.first is None else {"verb": launch.first.verb, "args": dict(launch.first.args)}
    return _line(
        {
            "v": VERSION,
            "name": launch.name,
            "open": launch.open,
            "first": first,
            "allowAll": launch.allow_all,
            "foreground": launch.foreground,
            "keep": launch.keep,
            "hosted": launch.hosted,
            "asJson": launch.as_json,
        }
    )


def decode_launch(line: bytes) -> Launch:
    """UsageError for anything else."""
    obj = _object(line)
    first = obj.get("first")
    try:
        return Launch(
            name=str(obj["name"]),
            open=str(obj["open"]),
            first=None if first is None else Request(str(first["verb"]), dict(first["args"])),
            allow_all=bool(obj["allowAll"]),
            foreground=bool(obj["foreground"]),
            keep=bool(obj["keep"]),
            hosted=bool(obj.get("hosted")),
            as_json=bool(obj.get("asJson")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"this is not a launch request: {error}") from error


def encode_invite(text: str) -> bytes:
    """The line that may come before the response to a launch."""
    return _line({"invite": text})


def decode_invite(line: bytes) -> str | None:
    """What is in it; None: the line is something else."""
    invite = _object(line).get("invite")
    return invite if isinstance(invite, str) else None


def error_object(error: LoopsupError) -> dict[str, Any]:
    """The JSON of an error, here and in `--json` output."""
    return {"exit": error.exit, "kind": error.kind, "message": error.message}


def follow_line(key: str, value: object) -> bytes:
    """One line of a `follow` stream; `key` is "event", "status" or "closed"."""
    return _line({key: value})


def _line(obj: Mapping[str, Any]) -> bytes:
    return json.dumps(obj, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    try:
        obj = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from error
    if not isinstance(obj, dict):
        raise UsageError("not a JSON object")
    return obj
