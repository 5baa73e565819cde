"""The Pi adapters' harness for the conformance suite: the real Pi before a model server that plays scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopsup.ports import Adapter, Conversation, Launch
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup_pi import create
from loopsup_pi import terminal as in_terminal
from tests.support.model_server import Body, ModelServer, Reply, bash, user_texts
from tests.support.pi_env import PiWorld


class PiHarness:
    """Enter it: it owns the model server."""

    def __init__(self, tmp: Path, terminal: bool = False) -> None:
        self.adapter: Adapter = in_terminal() if terminal else create()
        self._server = ModelServer(rule=self._reply)
        self._world = PiWorld(tmp, self._server.url)
        self._scenarios: tuple[Scenario, ...] = ()

    def __enter__(self) -> PiHarness:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def launch(self, resume: Conversation | None = None) -> Launch:
        return self._world.launch([], resume=resume)

    def script(self, *scenarios: Scenario) -> None:
        self._scenarios = scenarios

    def heard(self) -> list[str]:
        return user_texts(self._server.requests[-1])

    def tool_results(self) -> list[str]:
        messages = self._server.requests[-1]["messages"]
        return [str(message["content"]) for message in messages if message["role"] == "tool"]

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
