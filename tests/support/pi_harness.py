"""The Pi adapters' harness for the conformance suite."""

from __future__ import annotations

from pathlib import Path

from loopsup_pi import create
from loopsup_pi import terminal as in_terminal
from tests.support.model_harness import ModelHarness
from tests.support.model_server import user_texts
from tests.support.pi_env import PiWorld


class PiHarness(ModelHarness):
    """See `loopsup.testing.harness.Harness`. `terminal`: Pi's own interface (`pi-tui`)."""

    def __init__(self, tmp: Path, terminal: bool = False) -> None:
        super().__init__(in_terminal() if terminal else create(), lambda url: PiWorld(tmp, url))

    def heard(self) -> list[str]:
        return user_texts(self.newest)
