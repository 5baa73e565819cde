"""The demo adapter keeps every promise of the ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.testing import conformance
from tests.support.demo_harness import DemoHarness

pytestmark = pytest.mark.slow  # real processes


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_demo_adapter_conforms(check: conformance.Check, tmp_path: Path) -> None:
    conformance.run(check, DemoHarness(tmp_path))
