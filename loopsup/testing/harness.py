"""What an adapter's author gives the suite: launches, and an agent that does what a scenario says.

An agent with a model is best scripted by a fake model server: a scenario is then the list of responses it
gives to the model requests that follow one prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loopsup.ports import Adapter, Conversation, Launch


@dataclass(frozen=True, slots=True)
class Talk:
    """One response: this text, no tool call."""

    text: str = "I am looking into it."


@dataclass(frozen=True, slots=True)
class Decide:
    """Response n calls `loop_control` with `calls[n]`, as long as the verdicts are refusals; then plain text.

    With `with_tool` each of these responses calls an ordinary, harmless tool of the agent first (the same
    response, two calls).
    """

    calls: tuple[Mapping[str, Any], ...]
    with_tool: bool = False


@dataclass(frozen=True, slots=True)
class UseTool:
    """A response with one call of an ordinary, harmless tool of the agent; then plain text."""


@dataclass(frozen=True, slots=True)
class Hang:
    """The model request is opened and never answered."""


Scenario = Talk | Decide | UseTool | Hang


class Harness(Protocol):
    """One for each check, with directories of its own."""

    @property
    def adapter(self) -> Adapter: ...

    def launch(self, resume: Conversation | None = None) -> Launch:
        """A launch; the same directories and session id at each call."""
        ...

    def script(self, *scenarios: Scenario) -> None:
        """Called once, before the agent starts: prompt n gets scenario n, later ones the last."""
        ...

    def heard(self) -> list[str]:
        """The user-role texts in front of the model at its newest request, oldest first."""
        ...

    def tool_results(self) -> list[str]:
        """The tool results (of `loop_control`, too) in front of the model at its newest request."""
        ...
