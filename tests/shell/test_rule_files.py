"""Rules in their files, through the real matcher and the real supervisor, on a virtual clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loopsup.store.config import load_config
from loopsup.store.home import find_home
from loopsup.store.rules import find_rules, name_in
from loopsup.store.trust import trust
from tests.shell.test_rules import done, in_window, prompts, streams
from tests.shell.world import World, night
from tests.support.fake_agent import ALL, Act, FakeAdapter, says
from tests.support.virtual import VirtualClock

ABLE = replace(ALL, rewind=True, continue_without_message=True, keep_partial=True, hold_tools=True)
FORCE = "---\nname: no-force\ncondition: git push --force\n---\nDo not force-push.\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a file below the person's configuration."""
    monkeypatch.setenv("LOOPSUP_HOME", str(tmp_path / "state"))

    def write(where: str, text: str) -> None:
        path = tmp_path / "config" / "loopsup" / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def play(folder: Path, acts: list[Act], *, guest: bool = False, story: object = done) -> World:
    adapter = FakeAdapter(capabilities=ABLE, default=says("complete"))
    adapter.acts.extend(acts)

    async def begun(world: World, clock: VirtualClock) -> None:
        world.supervisor.book.open(folder, guest=guest)
        assert callable(story)
        await story(world, clock)

    return night(folder, begun, adapter)


def notices(world: World) -> list[str]:
    return [event["data"]["message"] for event in world.events("loop.notice")]


def test_a_rule_of_the_persons_own_acts(tmp_path: Path, mine: Callable[[str, str], None]) -> None:
    mine("rules/no-force.md", FORCE)
    world = play(tmp_path, [streams("I will git pu", "sh --fo", "rce now")])
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    reminder = world.adapter.prompts[1].text
    assert 'rule="no-force" path="config/loopsup/rules/no-force.md"' in reminder
    assert "Do not force-push." in reminder
    assert notices(world) == []


def test_the_projects_rules_act_once_they_are_trusted(tmp_path: Path, mine: Callable[[str, str], None]) -> None:
    project = tmp_path / "project"
    rule = project / ".omp" / "rules" / "no-force.md"
    rule.parent.mkdir(parents=True)
    rule.write_text(FORCE)
    world = play(project, [streams("git push --force")])
    assert prompts(world)[:2] == [("loop", False), ("protocol", False)]
    assert "stream rules: .omp/rules/no-force.md (not trusted" in notices(world)[0]
    (found,) = find_rules(project, os.environ, load_config())
    trust(find_home(), str(project), {name_in(project, found.file): found.mark})
    (project / "session").rename(project / "before")
    world = play(project, [streams("git push --force")])
    assert prompts(world) == [("loop", False), ("ttsr", False)]


def test_the_configuration_is_read_again_when_the_window_closes(
    tmp_path: Path, mine: Callable[[str, str], None]
) -> None:
    mine("rules/no-force.md", FORCE)

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        mine("config.toml", '[ttsr]\ncontext_mode = "keep"\n')
        await world.until(lambda: world.loop.terminal)

    world = play(tmp_path, [streams("git push --force")], story=story)
    assert prompts(world) == [("loop", False), ("ttsr", True)]


def test_a_trigger_that_is_no_pattern_is_told_and_the_others_act(
    tmp_path: Path, mine: Callable[[str, str], None]
) -> None:
    mine("rules/no-force.md", FORCE)
    mine("rules/broken.md", "---\ncondition: (\n---\nNothing.\n")
    world = play(tmp_path, [streams("git push --force")])
    assert notices(world) == ["the stream rule broken: the trigger '(' is left out: missing ): ("]
    assert prompts(world) == [("loop", False), ("ttsr", False)]


def test_a_trigger_that_is_too_slow_is_told_and_holds_nothing_up(
    tmp_path: Path, mine: Callable[[str, str], None]
) -> None:
    """Case 137, for a pattern only the second engine knows."""
    mine("rules/no-force.md", FORCE)
    mine("rules/slow.md", "---\ncondition: (?=a)(a|a?|aa)+$\\1\n---\nNothing.\n")
    world = play(tmp_path, [streams("a" * 10_000 + "b", "git push --force")])
    assert notices(world) == [
        "the rule slow: a trigger of it takes too long, so it is not watched any more in this session"
    ]
    assert prompts(world) == [("loop", False), ("ttsr", False)]


def test_in_front_of_a_person_no_rules_are_in_force(tmp_path: Path, mine: Callable[[str, str], None]) -> None:
    mine("rules/no-force.md", FORCE)
    world = play(tmp_path, [streams("git push --force", lasts_s=1)], guest=True)
    assert world.events("ttsr_triggered") == []
    assert notices(world) == ["stream rules are not in force here: you are in front of the agent yourself"]


def test_switched_off_nothing_is_in_force(tmp_path: Path, mine: Callable[[str, str], None]) -> None:
    mine("rules/no-force.md", FORCE)
    mine("config.toml", "[ttsr]\nenabled = false\n")
    world = play(tmp_path, [streams("git push --force", lasts_s=1)])
    assert world.events("ttsr_triggered") == []
    assert notices(world) == []
