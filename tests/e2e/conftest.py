"""Every end-to-end test has a world of its own."""

from tests.support.world import world

__all__ = ["world"]
