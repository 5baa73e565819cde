"""End to end with the real Pi in its terminal interface: the loop, and a person at its screen."""

from __future__ import annotations

import shlex

import pytest

from tests.support.model_server import Reply, bash, user_texts
from tests.support.pi_product import product
from tests.support.pty_world import CONTROL, person, told_of_a_draft

pytestmark = [pytest.mark.slow, pytest.mark.pi, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


def decide(verb: str) -> Reply:
    words = [*CONTROL, verb, "--summary", "looked", "--evidence", "make test: 3 passed"]
    return Reply("I decide.", tools=[bash(shlex.join(words))])


def test_iterations_a_draft_and_a_person_who_leaves() -> None:
    script = [decide("continue"), Reply("I wait."), Reply("Hello yourself."), decide("complete"), Reply("Done.")]
    with product(script) as it:
        words = ["--agent", "pi-tui", "--every", "1h", "--min-delay", "1s", "--detach", "obj"]
        it.json("start", *words, timeout=120)
        it.until(state="waiting", timeout=PATIENCE_S)
        with person(it, rows=35, cols=110) as somebody:
            somebody.sees("I wait.")
            somebody.types("half a thou")
            somebody.sees("half a thou")
            it.ask("say", text="hello")
            it.wait_for(lambda: told_of_a_draft(it), "the notice", PATIENCE_S)
            somebody.types("\x15")
            it.wait_for(lambda: "hello" in it.said("user"), "the message", PATIENCE_S)
            assert somebody.leaves() == 0
        it.wait_for(lambda: len(it.requests) == 3, "the answer", PATIENCE_S)
        it.ask("update", policy={"rhythm": 1000, "minDelayMs": 1000})
        it.until(state="completed", timeout=PATIENCE_S)
        loop = it.loop()
        assert (loop["iterationCount"], loop["promptsSent"], loop["protocolRetryCount"]) == (2, 2, 0)
        assert "loopsup control continue|complete|fail|block" in it.said("loop")[0]
        first, second = it.said("loop")
        assert user_texts(it.requests[-1]) == [first, "hello", second]
