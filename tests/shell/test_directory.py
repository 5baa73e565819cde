"""The directory of a session is gone, or its disk is not mounted yet: said as it is, and mended by its return."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.errors import AgentUnableError
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, says
from tests.support.virtual import VirtualClock


def test_no_agent_is_asked_for_where_its_directory_is_not_there(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        world.folder = tmp_path / "unmounted"
        with pytest.raises(AgentUnableError) as refused:
            await world.supervisor.host.start()
        assert refused.value.message == f"the directory the agent works in is not there: {tmp_path / 'unmounted'}"
        assert world.adapter.agents == []
        world.folder.mkdir()
        await world.supervisor.host.start()
        assert len(world.adapter.agents) == 1

    night(tmp_path, story, FakeAdapter(default=says("continue")))
