"""Stream rules with the demo agent: real processes, no model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.world import World

pytestmark = pytest.mark.slow

DONE = {"decision": "complete", "summary": "all done", "evidence": "scripted"}


def rule(world: World, name: str, trigger: str, *header: str) -> None:
    """A rule of the person's own."""
    folder = world.config.parent / "rules"
    folder.mkdir(exist_ok=True)
    lines = ["---", f"name: {name}", f"ttsr_trigger: '{trigger}'", *header, "---", f"Never {name}."]
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def data(world: World, kind: str) -> list[Any]:
    return [event["data"] for event in world.events(kind)]


def test_text_is_interrupted_and_a_tool_never_runs(world: World) -> None:
    rule(world, "no-force", "force-push")
    rule(world, "no-rm", "rm -rf")
    evil, good = world.project / "evil", world.project / "good"
    script = [
        {"do": "omit", "text": "I will force-push now.", "linger_for": world.gate("never")},
        {"do": "calls", "turns": [[{"tool": "sh", "arguments": {"command": "rm -rf x"}, "makes": str(evil)}]]},
        {"do": "calls", "turns": [[{"tool": "sh", "arguments": {}, "makes": str(good)}], [{"args": DONE}]]},
    ]
    world.start(script)
    loop = world.json("wait", "--timeout", "100s", code=0)["loop"]
    assert (loop["state"], loop["protocolRetryCount"], loop["promptsSent"]) == ("completed", 0, 1)
    assert (evil.exists(), good.exists()) == (False, True)
    assert [one["rules"] for one in data(world, "ttsr_injection")] == [["no-force"], ["no-rm"]]
    origins = [one["origin"] for one in data(world, "user.message")]
    assert origins == ["loop", "ttsr", "ttsr"]
    assert "stopped by the rule no-rm" in world.run("logs").out


def test_a_rule_switched_off_by_the_configuration_does_nothing(world: World) -> None:
    world.configure("[ttsr]\nenabled = false\n")
    rule(world, "no-force", "force-push")
    world.start([{"do": "omit", "text": "I will force-push now."}, {"do": "decide"}])
    assert world.json("wait", "--timeout", "100s", code=0)["loop"]["state"] == "completed"
    assert data(world, "ttsr_triggered") == []


def test_an_unreadable_pattern_is_told_and_the_others_act(world: World) -> None:
    """Case 122."""
    rule(world, "broken", "(")
    rule(world, "no-force", "force-push")
    world.start([{"do": "omit", "text": "I will force-push now."}, {"do": "decide"}])
    assert world.json("wait", "--timeout", "100s", code=0)["loop"]["state"] == "completed"
    assert [one["rules"] for one in data(world, "ttsr_injection")] == [["no-force"]]
    assert [one for one in data(world, "loop.notice") if "broken" in one["message"]]
