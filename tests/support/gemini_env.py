"""The real Gemini CLI in a world of its own: a scripted model on loopback that speaks Gemini's API."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import acp_toolchain
from tests.support.model_server import Body, Reply
from tests.support.world import World

TOOL = "mcp_loopsup_loop_control"  # what Gemini makes of our MCP server's tool


def decision(verb: str, summary: str = "looked", evidence: str = "ran make test", **more: str) -> tuple[str, Any]:
    """A call of the carrier's tool."""
    return (TOOL, {"decision": verb, "summary": summary, "evidence": evidence, **more})


def shell(command: str) -> tuple[str, Any]:
    """A call of Gemini's shell tool."""
    return ("run_shell_command", {"command": command, "description": "a step of the test"})


class GeminiModel:
    """A script of replies (text and tool calls of `Reply` only), used by requests that offer tools."""

    def __init__(self, script: Iterable[Reply]) -> None:
        self._script = deque(script)
        self._lock = threading.Lock()
        self.turns: list[Body] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> GeminiModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def user_texts(self) -> list[str]:
        """What the model saw of the user at its newest turn."""
        texts = [
            part["text"]
            for content in self.turns[-1]["contents"]
            if content["role"] == "user"
            for part in content["parts"]
            if "text" in part
        ]
        return [text for text in texts if not text.startswith("<session_context>")]

    def take(self, body: Body) -> Reply:
        with self._lock:
            if not body.get("tools"):
                return Reply("{}")  # its own questions, about routing and loops
            self.turns.append(body)
            return self._script.popleft() if self._script else Reply("The script is used up.")


def answer(reply: Reply) -> Body:
    """One answer of the API, whole."""
    parts: list[Body] = [{"text": reply.text}] if reply.text else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.tools]
    usage = {
        "promptTokenCount": reply.input_tokens,
        "candidatesTokenCount": reply.output_tokens,
        "totalTokenCount": reply.input_tokens + reply.output_tokens,
    }
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


def _handler(model: GeminiModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if ":countTokens" in self.path:
                self._send("application/json", json.dumps({"totalTokens": 10}))
            elif ":streamGenerateContent" in self.path:
                self._send("text/event-stream", f"data: {json.dumps(answer(model.take(body)))}\r\n\r\n")
            else:
                self._send("application/json", json.dumps(answer(model.take(body))))

        def _send(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


def equip(world: World, model: GeminiModel) -> None:
    """Gemini on the world's PATH, logged in with a key that only the scripted model takes."""
    home = world.root / "user" / ".gemini"
    home.mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
        "telemetry": {"enabled": False},
        "model": {"name": "gemini-2.5-flash"},
    }
    (home / "settings.json").write_text(json.dumps(settings))
    world.env |= {
        "PATH": os.pathsep.join((str(acp_toolchain.ensure(acp_toolchain.GEMINI)), world.env["PATH"])),
        "GEMINI_API_KEY": "fake-key",
        "GOOGLE_GEMINI_BASE_URL": model.url,
    }
