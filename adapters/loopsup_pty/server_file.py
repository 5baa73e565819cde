"""The configuration of our MCP server, for a program that takes it from a file. Private: it holds a token."""

from __future__ import annotations

import json
import os

from loopsup.ports import Launch


class ServerFile:
    """Written at the start, removed at the end."""

    def __init__(self, launch: Launch) -> None:
        self._carrier = launch.carrier
        self._path = launch.run_dir / f"mcp-{launch.session_id}.json"

    def write(self) -> None:
        carrier = self._carrier
        if carrier is None:
            return
        server = {"type": "local", "command": carrier.command, "args": list(carrier.args), "tools": ["*"]}
        text = json.dumps({"mcpServers": {carrier.name: {**server, "env": dict(carrier.env)}}})
        self.remove()
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as out:
            out.write(text)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
