"""A real agent before a model server that plays scenarios: what the harnesses of Pi and of Copilot have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from loopsup.ports import Adapter, Conversation, Launch
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from tests.support.agent_env import AgentWorld
from tests.support.model_server import Body, ModelServer, Reply, bash


class ModelHarness:
    """Most of `loopsup.testing.harness.Harness`. Enter it: it owns the model server, whose URL `world` gets."""

    def __init__(self, adapter: Adapter, world: Callable[[str], AgentWorld]) -> None:
        self.adapter = adapter
        self._server = ModelServer(rule=self._reply)
        self._world = world(self._server.url)
        self._scenarios: tuple[Scenario, ...] = ()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def launch(self, resume: Conversation | None = None) -> Launch:
        return self._world.launch([], resume=resume)

    def script(self, *scenarios: Scenario) -> None:
        self._scenarios = scenarios

    @property
    def newest(self) -> Body:
        """The newest request."""
        return self._server.requests[-1]

    def tool_results(self) -> list[str]:
        return [str(message["content"]) for message in self.newest["messages"] if message["role"] == "tool"]

    def _reply(self, body: Body) -> Reply:
        """By the place of the request: the prompt it belongs to, and how many responses that one got."""
        roles = [message["role"] for message in body["messages"]]
        prompt = roles.count("user") - 1
        last = len(roles) - 1 - roles[::-1].index("user")
        scenario = self._scenarios[min(prompt, len(self._scenarios) - 1)]
        return response(scenario, roles[last:].count("assistant"))


def response(scenario: Scenario, number: int) -> Reply:
    """Response `number` of a scenario."""
    match scenario:
        case Talk(text):
            return Reply(text)
        case Hang():
            return Reply(hang="headers")
        case UseTool():
            return Reply(tools=[bash("echo harmless")]) if number == 0 else Reply("The tool has run.")
        case Decide(calls, with_tool):
            if number >= len(calls):
                return Reply("There is nothing else to decide.")
            tools: list[tuple[str, dict[str, Any]]] = [bash("echo harmless")] if with_tool else []
            return Reply(tools=[*tools, ("loop_control", dict(calls[number]))])
