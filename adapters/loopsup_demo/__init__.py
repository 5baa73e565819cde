"""The demo adapter: an agent without a model that really looks at something and decides from it.

For a newcomer's first minute, the examples and the tests. It is driven exactly as any other agent: a child
process, a conversation that survives it, turns, tools, one `loop_control` decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopsup.ports import Adapter

__all__ = ["create"]


def create() -> Adapter:
    """The entry point. The import is here because the agent's own process imports this package, too."""
    from loopsup_demo.adapter import DemoAdapter

    return DemoAdapter()
