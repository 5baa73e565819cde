"""From a started process to an open conversation whose model has `loop_control`. Every step is bounded.

A conversation is resumed where the agent can (nothing is replayed), else loaded where it can (everything is, and
some agents go on after they answered), else the start fails: another conversation is never taken instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from loopsup.ports import AgentUnableError, Carrier, Launch
from loopsup_acp.client import Client, RequestFailedError
from loopsup_acp.outcome import AUTH_REQUIRED, words
from loopsup_acp.profiles import Profile

PROTOCOL = 1
OPENING_S = 60.0  # for both requests: a CLI that unpacks itself at its very first start takes half of it
SESSION_S = 30.0  # of it, for a session: some look into a repository first; an unknown id may never be answered
CARRIER_S = 15.0  # our server is up in a tenth of a second; agents list its tools before the first prompt
REPLAY_QUIET_S = 0.5  # no update for this long after a load: the replay is over
REPLAY_MAX_S = 5.0  # and this is all the time it gets
CLIENT = {
    "protocolVersion": PROTOCOL,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "loopsup", "version": "1"},
}


class Opening:
    """`open`, then `offered`. `update` is set at every update of the agent."""

    def __init__(self, name: str, profile: Profile, launch: Launch, client: Client, update: asyncio.Event) -> None:
        self._name = name
        self._profile = profile
        self._launch = launch
        self._client = client
        self._update = update
        self._until = asyncio.get_running_loop().time() + OPENING_S

    async def open(self) -> str:
        """The session's id. AgentUnableError, ConnectionError."""
        able = await self._initialize()
        place: dict[str, Any] = {"cwd": str(self._launch.cwd), "mcpServers": self._servers()}
        if self._profile.meta:
            place["_meta"] = dict(self._profile.meta)
        resume = self._launch.resume
        if resume is None:
            result = await self._request("session/new", place, SESSION_S)
            if not isinstance(result.get("sessionId"), str) or not result["sessionId"]:
                raise AgentUnableError(f"{self._name} opened a session without an id")
            return str(result["sessionId"])
        place["sessionId"] = resume.id
        if isinstance(_object(able.get("sessionCapabilities")).get("resume"), dict):
            await self._request("session/resume", place, SESSION_S)
        elif able.get("loadSession") is True:
            await self._request("session/load", place, SESSION_S)
            await self._until_quiet()
        else:
            raise AgentUnableError(f"{self._name} cannot go on with an earlier conversation; start a new session")
        return resume.id

    async def offered(self, carrier: Carrier) -> None:
        """AgentUnableError unless the agent's model has our tool."""
        problem = await carrier.offered(CARRIER_S)
        if problem is not None:
            raise AgentUnableError(f"{self._name}: {problem}")

    async def _initialize(self) -> Mapping[str, Any]:
        result = await self._request("initialize", CLIENT, OPENING_S)
        spoken = result.get("protocolVersion")
        if spoken != PROTOCOL:
            raise AgentUnableError(f"{self._name} speaks version {spoken} of ACP; loopsup speaks {PROTOCOL}")
        return _object(result.get("agentCapabilities"))

    async def _request(self, method: str, params: Mapping[str, Any], within_s: float) -> Mapping[str, Any]:
        within_s = min(within_s, max(1.0, self._until - asyncio.get_running_loop().time()))
        try:
            return await asyncio.wait_for(self._client.request(method, dict(params)), within_s)
        except TimeoutError:
            raise AgentUnableError(f"{self._name} did not answer {method} within {within_s:.0f} s") from None
        except RequestFailedError as error:
            if error.code == AUTH_REQUIRED:
                raise AgentUnableError(
                    f"{self._name} wants you to log in first ({words(error)}): run it yourself once and do so"
                ) from error
            raise AgentUnableError(f"{self._name} refused {method}: {words(error)}") from error

    async def _until_quiet(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLAY_MAX_S):
                while True:
                    self._update.clear()
                    await asyncio.wait_for(self._update.wait(), REPLAY_QUIET_S)

    def _servers(self) -> list[dict[str, Any]]:
        carrier = self._launch.carrier
        if carrier is None:
            return []
        env = [{"name": name, "value": value} for name, value in carrier.env.items()]
        return [{"name": carrier.name, "command": carrier.command, "args": list(carrier.args), "env": env}]


def _object(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}
