"""The pty adapter keeps every promise of the ports, with a scripted terminal program."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.testing import conformance
from tests.support.pty_harness import PtyHarness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_the_pty_adapter_conforms(check: conformance.Check, tmp_path: Path) -> None:
    conformance.run(check, PtyHarness(tmp_path))
