"""The tool carrier of an agent without a native tool: who may decide, and whether the model has the tool at all.

Rules. A token is made at each start of the agent and void as soon as that agent is let go: nothing an older
process left behind can decide. The carrier is an MCP server of ours that the agent starts (or `loopsup control`
in its shell); it says hello when it comes up and when its tools are listed. An agent whose tools were never listed
is not prompted: its model could not decide.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import sys
from pathlib import Path

from loopsup.errors import RefusedError
from loopsup.ports import Carrier
from loopsup.wire.control import SOCKET_VARIABLE, TOKEN_VARIABLE

NAME = "loopsup"  # of the MCP server; agents show the tool as loopsup_loop_control or mcp__loopsup__loop_control
SERVER = Path(__file__).resolve().parents[1] / "mcp_server.py"
TOKEN_BYTES = 24
STARTED, LISTED = "started", "listed"


class Carriers:
    """Issues carriers; the newest one is the only one that counts."""

    def __init__(self, socket: str, session: str) -> None:
        self._socket = socket
        self._session = session
        self._token: str | None = None
        self._started = False
        self._listed = asyncio.Event()

    def issue(self) -> Carrier:
        """A carrier with a token of its own, for the agent about to be started."""
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._started = False
        self._listed = asyncio.Event()
        env = {SOCKET_VARIABLE: self._socket, TOKEN_VARIABLE: self._token, "LOOPSUP_SESSION": self._session}
        # -I and -S: nothing the agent may have written into its directory is imported, and it starts at once
        return Carrier(NAME, sys.executable, ("-I", "-S", str(SERVER)), env, self._offered)

    def void(self) -> None:
        """The agent is let go."""
        self._token = None

    def check(self, token: object) -> None:
        """RefusedError unless this is the token of the agent that is up (or coming up)."""
        if not isinstance(token, str) or self._token is None or not _same(token, self._token):
            raise RefusedError(
                "this does not come from the agent this session drives now (the token is missing or no longer "
                "valid); do not repeat this call"
            )

    def hello(self, token: object, stage: str) -> None:
        """The carrier reports how far it has come."""
        self.check(token)
        self._started = True
        if stage == LISTED:
            self._listed.set()

    async def _offered(self, within_s: float) -> str | None:
        try:
            await asyncio.wait_for(self._listed.wait(), within_s)
        except TimeoutError:
            if self._started:
                return (
                    f"the agent started the MCP server '{NAME}' and did not ask for its tools within {within_s:g} s"
                )
            return (
                f"the agent did not start the MCP server '{NAME}' within {within_s:g} s, so its model cannot decide; "
                "does its own configuration forbid MCP servers, or have another one of this name?"
            )
        return None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
