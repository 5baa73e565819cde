"""The Pi adapters keep every promise of the ports, with the real Pi."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.testing import conformance
from tests.support.pi_harness import PiHarness

pytestmark = [pytest.mark.pi, pytest.mark.slow]


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_pi_adapter_conforms(check: conformance.Check, tmp_path: Path) -> None:
    with PiHarness(tmp_path) as harness:
        conformance.run(check, harness)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_adapter_for_pis_terminal_conforms(check: conformance.Check, tmp_path: Path) -> None:
    with PiHarness(tmp_path, terminal=True) as harness:
        conformance.run(check, harness)
