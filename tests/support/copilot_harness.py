"""The Copilot adapter's harness for the conformance suite."""

from __future__ import annotations

from pathlib import Path

from loopsup_copilot import create
from tests.support.copilot_env import CopilotWorld, heard
from tests.support.model_harness import ModelHarness


class CopilotHarness(ModelHarness):
    """See `loopsup.testing.harness.Harness`."""

    def __init__(self, tmp: Path) -> None:
        super().__init__(create(), lambda url: CopilotWorld(tmp, url))

    def heard(self) -> list[str]:
        return heard(self.newest)
