"""A short soak: supervisors, agents and clients are killed at random, and the books balance."""

from __future__ import annotations

import pytest

from tests.support.soak import soak
from tests.support.world import World

pytestmark = pytest.mark.slow


def test_the_books_balance_after_sixty_wakes(world: World) -> None:
    lines = soak(world, seed=7, wakes=60, sessions=2)
    assert all(line.endswith("duplicates 0") for line in lines[:2])
