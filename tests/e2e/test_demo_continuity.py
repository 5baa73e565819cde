"""An agent that cannot go on silently gets its interrupted iteration handed over again."""

from __future__ import annotations

import pytest

from tests.support.world import INSTANT, World

pytestmark = pytest.mark.slow

COMPLETE = {"do": "decide"}
LIMIT = {"do": "error", "message": "usage limit reached. Try again in 300 min"}


def test_the_same_iteration_again_counted_once(world: World) -> None:
    broken = {"do": "error", "message": "fetch failed"}
    world.start(["length", broken, COMPLETE], "--continuity-stream-delay-ms", "0")
    loop = world.json("wait", "--timeout", "100s")["loop"]
    assert (loop["state"], loop["iterationCount"], loop["promptsSent"], loop["protocolRetryCount"]) == (
        "completed",
        1,
        3,
        0,
    )
    told = world.events("continuity.recovery")
    assert [event["data"] for event in told] == [
        {"kind": "length", "attempt": 1, "waitMs": 0},
        {"kind": "stream", "attempt": 1, "waitMs": 0},
    ]
    texts = world.said("loop")
    assert len(texts) == 3
    assert all("Iteration: 1 of 50" in text for text in texts)
    rows = world.ok("history", "--json").lines
    (row,) = [row for row in rows if row["type"] == "iteration"]
    assert [(each["kind"], each["waitMs"]) for each in row["recoveries"]] == [("length", 0), ("stream", 0)]
    assert "(output limit ×1, broken answer ×1)" in " ".join(world.ok("history").out.split())


def test_off_it_is_reminded(world: World) -> None:
    world.start(["length", COMPLETE], "--continuity", "off")
    loop = world.json("wait", "--timeout", "100s")["loop"]
    assert (loop["iterationCount"], loop["promptsSent"], loop["protocolRetryCount"]) == (1, 2, 1)
    assert world.events("continuity.recovery") == []


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("stop", "stopped")])
def test_its_wait_is_shown_and_ends_at_once(world: World, verb: str, state: str) -> None:
    world.start([LIMIT, COMPLETE])
    world.until_event("continuity.recovery")
    assert world.loop()["recovery"] == {
        "kind": "usage_limit",
        "mode": "redelivered",
        "attempt": 1,
        "of": 16,
        "until": INSTANT,
    }
    assert "usage limit, attempt 1 of 16, waits until " in world.ok("status").out
    loop = world.json(verb)["loop"]
    assert (loop["state"], loop["recovery"], loop["promptsSent"]) == (state, None, 1)


def test_a_killed_supervisor_leaves_it_paused(world: World) -> None:
    """As any iteration under way."""
    world.start([LIMIT, COMPLETE])
    world.until_event("continuity.recovery")
    world.kill(world.supervisor())
    assert world.loop()["pauseReason"] == "supervisor_lost"
    world.ok("resume")
    assert world.json("wait", "--timeout", "100s")["loop"]["state"] == "completed"
