"""Ticks with the real Pi: each one goes on in the same conversation, and in between no process is there."""

from __future__ import annotations

import pytest

from tests.support.model_server import Reply, decision, user_texts
from tests.support.pi_product import product

pytestmark = [pytest.mark.pi, pytest.mark.slow]

PATIENT_S = 180.0  # a tick waits for its iteration, and Pi starts slowly on a busy machine


def test_two_ticks_are_one_conversation() -> None:
    replies = [Reply(tools=[decision("continue", nextDelay="1s")]), Reply(tools=[decision("complete")])]
    with product(replies) as pi:
        begun = pi.begin("--driver", "tick")
        assert begun["loop"]["state"] == "waiting"
        assert pi.processes() == []
        assert pi.requests == []
        pi.act("tick", timeout=PATIENT_S)
        assert pi.processes() == []
        assert pi.loop()["state"] == "waiting"
        pi.wait_for(lambda: pi.json("tick", timeout=PATIENT_S)["sessions"], "the second wake to be due")
        assert pi.loop()["state"] == "completed"
        first, second = pi.requests
        assert len(user_texts(first)) == 1
        assert len(user_texts(second)) == 2, "the first iteration is in the conversation of the second"
        assert (
            len({data["agentSessionId"] for kind in ("start", "resume") for data in pi.data(f"session.{kind}")}) == 1
        )
