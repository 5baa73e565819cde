"""`say --autopilot` on the real Copilot: the supervisor's reminders, and task_complete (A-14..A-23, X-09..X-11)."""

from __future__ import annotations

import pytest

from loopsup.core.autopilot import REMINDER
from tests.support.copilot_product import product
from tests.support.model_server import Reply, decision

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

CONTINUE = Reply(tools=[decision("continue", "still red")])
COMPLETE = Reply(tools=[decision("complete")])
TASK_COMPLETE = Reply(tools=[("task_complete", {"summary": "all done"})])


def test_reminders_until_task_complete_and_the_loop_goes_on_beside_it() -> None:
    script = [CONTINUE, Reply("I have a plan."), Reply("Half of it is done."), TASK_COMPLETE, COMPLETE]
    with product(script) as it:
        it.begin("--allow-all", every="1h")
        it.until(state="waiting")
        it.act("say", "--wait", "--autopilot", "do it")
        it.act("update", "--every", "1s")
        it.wait(expect=0)
        told = it.data("user.message")
        assert [data["origin"] for data in told] == ["loop", "user", "autopilot", "autopilot", "loop"]
        assert [data["text"] for data in told if data["origin"] == "autopilot"] == [REMINDER] * 2
        assert [data.get("summary") for data in it.data("session.task_complete")] == ["all done"]
        assert it.balanced()


def test_the_bound_of_the_reminders() -> None:
    script = [CONTINUE, Reply("Planning."), Reply("Still planning."), COMPLETE]
    with product(script) as it:
        it.begin("--allow-all", every="1h")
        it.until(state="waiting")
        it.act("say", "--wait", "--autopilot", "--max-reminders", "1", "do it")
        it.act("update", "--every", "1s")
        it.wait(expect=0)
        assert [data["origin"] for data in it.data("user.message")] == ["loop", "user", "autopilot", "loop"]
        assert it.data("session.task_complete") == []
