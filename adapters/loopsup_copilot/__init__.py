"""The adapter for the GitHub Copilot CLI, driven headless through its Python SDK (`loopsup[copilot]`)."""

from __future__ import annotations

from loopsup.ports import Adapter
from loopsup_copilot.adapter import CopilotAdapter


def create() -> Adapter:
    """The entry point. The SDK is imported only when an agent starts."""
    return CopilotAdapter()
