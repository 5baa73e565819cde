"""The Copilot adapter's harness for the conformance suite: the real CLI and a model that plays scenarios."""

from __future__ import annotations

from pathlib import Path

from loopsup.ports import Adapter, Conversation, Launch
from loopsup.testing.harness import Scenario
from loopsup_copilot import create
from tests.support.copilot_env import CopilotWorld, heard, tool_texts
from tests.support.model_server import Body, ModelServer, Reply
from tests.support.pi_harness import response


class CopilotHarness:
    """Enter it: it owns the model server."""

    def __init__(self, tmp: Path) -> None:
        self.adapter: Adapter = create()
        self._server = ModelServer(rule=self._reply)
        self._world = CopilotWorld(tmp, self._server.url)
        self._scenarios: tuple[Scenario, ...] = ()

    def __enter__(self) -> CopilotHarness:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def launch(self, resume: Conversation | None = None) -> Launch:
        return self._world.launch([], resume=resume)

    def script(self, *scenarios: Scenario) -> None:
        self._scenarios = scenarios

    def heard(self) -> list[str]:
        return heard(self._server.requests[-1])

    def tool_results(self) -> list[str]:
        return tool_texts(self._server.requests[-1])

    def _reply(self, body: Body) -> Reply:
        """By the place of the request: the prompt it belongs to, and how many responses that one got."""
        roles = [message["role"] for message in body["messages"]]
        prompt = roles.count("user") - 1
        last = len(roles) - 1 - roles[::-1].index("user")
        scenario = self._scenarios[min(prompt, len(self._scenarios) - 1)]
        return response(scenario, roles[last:].count("assistant"))
