"""The whole way with the demo agent: start, wake, decide, wait."""

from __future__ import annotations

import pytest

from tests.support.world import World

pytestmark = pytest.mark.slow

DONE = {"decision": "complete", "summary": "all green", "evidence": "run 42 passed"}


def test_a_detached_loop_completes(world: World) -> None:
    started = world.start([{"do": "decide", "args": DONE}])
    assert started["loop"]["state"] in ("running", "completed")
    assert world.run("wait").code == 0
