"""The Copilot adapter keeps every promise of the ports, with the real Copilot CLI."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.testing import conformance
from tests.support.copilot_harness import CopilotHarness

pytestmark = [pytest.mark.copilot, pytest.mark.slow]


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_copilot_adapter_conforms(check: conformance.Check, tmp_path: Path) -> None:
    with CopilotHarness(tmp_path) as harness:
        conformance.run(check, harness)
