"""A scripted, OpenAI-compatible model server on loopback: what the real Pi talks to in tests.

A script is a list of replies, used in order; a rule (a callable, in-process only) may answer instead. Every
request body is recorded. A request beyond the script gets a 400, which no client repeats: a surplus LLM
call is a visible fault, never a hang.

In-process: `with ModelServer([Reply("hello")]) as server: … server.url …`. From another process:

    python -m tests.support.model_server --script replies.json      prints its base URL
    GET  /requests    the recorded bodies         GET /stats   {"requests": n, "hangups": n}
    POST /script      a JSON list of replies, appended

A reply in JSON has the fields of `Reply`; a tool call is `["name", {arguments}]`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GATE_S = 300.0  # longer than a test may take

Body = dict[str, Any]
Tool = tuple[str, dict[str, Any]]


@dataclass
class Reply:
    """One answer of the model. `finish` None: what fits the content."""

    text: str = ""
    tools: list[Tool] = field(default_factory=list)
    finish: str | None = None
    status: int = 200  # not 200: an HTTP error with `error` as its message
    error: str = ""
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    hang: str | None = None  # "headers": no answer at all; "stream": text, then silence; until the client leaves
    cut: bool = False  # the stream ends without a finish reason
    delay_s: float = 0.0
    gate: threading.Event | None = None  # in-process only: no answer before it is set
    input_tokens: int = 100
    output_tokens: int = 10
    chunk: int = 0  # characters per delta; 0: all at once
    raw_arguments: str | None = None  # instead of the first tool's arguments, as it stands


def decision(verb: str, summary: str = "did it", evidence: str = "pytest -q: 3 passed", **more: Any) -> Tool:
    """A `loop_control` call."""
    return ("loop_control", {"decision": verb, "summary": summary, "evidence": evidence, **more})


def bash(command: str) -> Tool:
    """A call of Pi's shell tool."""
    return ("bash", {"command": command})


def user_texts(body: Body) -> list[str]:
    """The user messages of a request, as plain texts."""
    return [_text(message["content"]) for message in body["messages"] if message["role"] == "user"]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class ModelServer:
    """The server. `rule(body)` returns a Reply or None (then the script is asked)."""

    def __init__(
        self, script: Iterable[Reply] = (), rule: Callable[[Body], Reply | None] | None = None, port: int = 0
    ) -> None:
        self._script = deque(script)
        self._rule = rule
        self._lock = threading.Condition()
        self.requests: list[Body] = []
        self.hangups = 0
        self._closed_r, self._closed_w = os.pipe()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """The base URL a provider is configured with."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._closed_w)  # wakes every hanging reply
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        os.close(self._closed_r)

    def add(self, *replies: Reply) -> None:
        """Append to the script."""
        with self._lock:
            self._script.extend(replies)

    def wait_for_requests(self, count: int, timeout: float = 120.0) -> list[Body]:
        """The bodies, once there are at least `count`; TimeoutError."""
        return self._wait(lambda: len(self.requests) >= count, timeout, f"{count} requests")

    def wait_for_hangups(self, count: int, timeout: float = 120.0) -> list[Body]:
        """Until `count` hanging replies were left by their client; TimeoutError."""
        return self._wait(lambda: self.hangups >= count, timeout, f"{count} hangups")

    def _wait(self, what: Callable[[], bool], timeout: float, name: str) -> list[Body]:
        with self._lock:
            if not self._lock.wait_for(what, timeout):
                raise TimeoutError(f"no {name} within {timeout} s; {len(self.requests)} requests so far")
            return list(self.requests)

    def _take(self, body: Body) -> Reply:
        with self._lock:
            self.requests.append(body)
            self._lock.notify_all()
            reply = self._rule(body) if self._rule is not None else None
            if reply is None and self._script:
                reply = self._script.popleft()
        return reply or Reply(status=400, error="the script of the model server is used up")

    def _hang(self, connection: Any) -> None:
        """Until the client closes the connection or the server ends."""
        ready, _, _ = select.select([connection, self._closed_r], [], [])
        if connection in ready:
            with self._lock:
                self.hangups += 1
                self._lock.notify_all()


def _chunks(reply: Reply, number: int) -> Iterator[Body]:
    """The `choices[0]` objects of a stream, without the finish reason."""
    size = reply.chunk or max(len(reply.text), 1)
    for start in range(0, len(reply.text), size):
        yield {"delta": {"role": "assistant", "content": reply.text[start : start + size]}}
    for index, (name, arguments) in enumerate(reply.tools):
        text = json.dumps(arguments)
        if index == 0 and reply.raw_arguments is not None:
            text = reply.raw_arguments
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        yield {"delta": {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}}
        yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": text}}]}}


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with server._lock:
                found: Any = {
                    "/requests": list(server.requests),
                    "/stats": {"requests": len(server.requests), "hangups": server.hangups},
                }.get(self.path)
            self._json(404 if found is None else 200, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                if self.path == "/script":
                    server.add(*map(reply_from, body))
                    self._json(200, {"ok": True})
                else:
                    self._answer(server._take(body))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _answer(self, reply: Reply) -> None:
            if reply.delay_s:
                time.sleep(reply.delay_s)
            if reply.gate is not None:
                reply.gate.wait(GATE_S)
            if reply.hang == "headers":
                self._leave()
            elif reply.status != 200:
                error = {"message": reply.error or f"fake error {reply.status}", "code": reply.code or None}
                self._json(reply.status, {"error": error}, reply.headers)
            else:
                self._stream(reply)

        def _stream(self, reply: Reply) -> None:
            self._stream_head()
            for choice in _chunks(reply, len(server.requests)):
                self._event(choices=[{"index": 0, **choice}])
            if reply.hang == "stream":
                self._leave()
            elif not reply.cut:
                finish = reply.finish or ("tool_calls" if reply.tools else "stop")
                total = reply.input_tokens + reply.output_tokens
                usage = {
                    "prompt_tokens": reply.input_tokens,
                    "completion_tokens": reply.output_tokens,
                    "total_tokens": total,
                }
                self._event(choices=[{"index": 0, "delta": {}, "finish_reason": finish}])
                self._event(choices=[], usage=usage)
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _leave(self) -> None:
            server._hang(self.connection)
            self.close_connection = True

        def _stream_head(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()

        def _event(self, **fields: Any) -> None:
            obj = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-1", **fields}
            self.wfile.write(b"data: " + json.dumps(obj).encode() + b"\n\n")
            self.wfile.flush()

        def _json(self, status: int, obj: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(obj).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


def reply_from(obj: Body) -> Reply:
    """A reply from its JSON."""
    tools = [(str(name), dict(arguments)) for name, arguments in obj.get("tools", [])]
    return Reply(**{**obj, "tools": tools})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", help="file with a JSON list of replies")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    script = []
    if given.script:
        with open(given.script, encoding="utf-8") as file:
            script = [reply_from(obj) for obj in json.load(file)]
    with ModelServer(script, port=given.port) as server:
        print(server.url, flush=True)
        sys.stdin.read()  # serves until its standard input is closed
    return 0


if __name__ == "__main__":
    sys.exit(main())
