"""End to end with the real Gemini CLI (`gemini --acp`) before a scripted model on loopback.

It has no `session/resume` and replays the conversation at `session/load`, partly after it has answered.
"""

from __future__ import annotations

import re

import pytest

from tests.support.gemini_env import GeminiModel, decision, equip, shell
from tests.support.model_server import Reply
from tests.support.world import QUICK, SLOW, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.gemini,
    pytest.mark.xdist_group("gemini"),
    pytest.mark.timeout(600),
]  # several starts of a CLI, 15 s each on a busy machine

STARTS_S = 150.0


def a_minute_passes(world: World) -> None:
    """Gemini 0.61 wipes a conversation that is loaded in the minute it began: both have the same file name then."""
    chats = sorted((world.root / "user" / ".gemini" / "tmp").glob("*/chats/session-*.jsonl"))
    assert chats
    for chat in chats:
        chat.rename(chat.with_name(re.sub(r"T(\d\d)-", lambda hour: f"T{(int(hour[1]) + 12) % 24:02}-", chat.name)))


def test_a_loop_with_a_question_and_a_replayed_conversation(world: World) -> None:
    script = [
        Reply("Let me see.", tools=[shell("touch red")]),
        Reply(tools=[decision("continue", "red", "echo red")]),
        Reply("I wait."),
        Reply(tools=[decision("complete", "green", "make test: 3 passed")]),
        Reply("Done."),
    ]
    with GeminiModel(script) as model:
        equip(world, model)
        words = ("--agent", "gemini", "--detach", *SLOW, "keep the tests green")
        world.json("start", *words, timeout=STARTS_S)
        question = world.wait_for(lambda: (world.peek()["loop"] or {}).get("question"), "the question", STARTS_S)
        assert (question["kind"], question["tool"]) == ("permission", "execute")
        assert "touch red" in question["text"]
        world.ok("answer", "allow")
        world.wait_for((world.project / "red").exists, "the tool")
        world.until(state="waiting", iterationCount=1, timeout=STARTS_S)
        world.ok("close")
        a_minute_passes(world)
        world.ok("resume", timeout=STARTS_S)
        world.json("update", *QUICK)
        world.until(state="completed", timeout=STARTS_S)
        assert model.user_texts() == world.said("loop")
    loop = world.loop()
    assert (loop["iterationCount"], loop["protocolRetryCount"]) == (2, 0)
    assert loop["lastDecision"]["evidence"] == "make test: 3 passed"
    asked = [event["data"]["tool"] for event in world.events("permission.requested")]
    assert asked == ["execute"]  # nobody is asked about loop_control
    second = [event for event in world.events() if event.get("iteration") == 2]
    tools = [event["data"]["toolName"] for event in second if event["type"] == "tool.execution_complete"]
    assert len(tools) == 1
    assert [event["data"]["text"] for event in second if event["type"] == "assistant.message"] == ["Done."]
    assert world.pairs() == (2, 2)
