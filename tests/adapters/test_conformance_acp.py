"""The ACP adapter keeps every promise of the ports, with a scripted agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.testing import conformance
from tests.support.acp_harness import AcpHarness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_acp_adapter_conforms(check: conformance.Check, tmp_path: Path) -> None:
    conformance.run(check, AcpHarness(tmp_path))
