"""What ends a wait, through the product and on the real Pi: at once, with one settlement and without a request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.support.model_server import Reply, decision
from tests.support.pi_product import PiProduct, product
from tests.support.steps import HOUR, Steps
from tests.support.world import INSTANT

pytestmark = [pytest.mark.pi, pytest.mark.slow]

TIMED = Reply(status=429, error="usage limit reached. Try again in 300 min")
POLL = Reply(status=400, error="Codex error: The usage limit has been reached")
STREAM = Reply("half of", cut=True)
DONE = Reply(tools=[decision("complete")])
LONG = ("--continuity-stream-delay-ms", "10000")  # the most there is; the others wait for minutes and hours
WAITS = pytest.mark.parametrize("reply", [TIMED, POLL, STREAM], ids=["timed", "poll", "stream"])


Begin = Callable[..., None]


@contextlib.contextmanager
def waiting(reply: Reply, *more: Reply) -> Iterator[tuple[PiProduct, Begin]]:
    """A product whose first answer makes it wait, and what brings it there. Pi does not retry by itself.

    The answer comes when the test has nothing to do but to look for the wait: the shortest one takes ten seconds.
    """
    gate = threading.Event()
    with product([replace(reply, gate=gate), *more], retry={"enabled": False}) as pi:

        def begin(*options: str) -> None:
            pi.begin(*LONG, *options)
            gate.set()
            pi.wait_for(lambda: (pi.peek()["loop"] or {}).get("recovery"), "a wait")

        yield pi, begin


@WAITS
@pytest.mark.parametrize(
    ("verb", "place"),
    [("abort", ("paused", "interrupted")), ("pause", ("paused", "user")), ("stop", ("stopped", None))],
)
def test_a_person_ends_it(reply: Reply, verb: str, place: tuple[str, str | None]) -> None:
    """X-20, C-66, C-67, case 219."""
    with waiting(reply) as (pi, begin):
        begin()
        pi.ask(verb)
        pi.until(state=place[0], pauseReason=place[1], recovery=None)
        assert len(pi.requests) == 1  # so the wait had not come to its end
        pi.until_event("abort")
        assert pi.data("abort") == [{"reason": "user"}]
        pi.wait_for(pi.balanced, "the end of the turn")
        assert pi.the_pi().is_running()  # it settled, nobody had to end it


def test_the_deadline_ends_it_at_its_instant() -> None:
    """X-19."""
    with waiting(TIMED) as (pi, begin):
        steps = Steps(pi)
        begin("--for", "1h")
        steps.set(2 * HOUR)
        loop = pi.wait(expect=12)
        assert loop["lastAttention"]["status"] == "duration_limit"
        assert loop["lastAttention"]["endedAt"] == loop["deadlineAt"]
        pi.until_event("abort", reason="watchdog")
        assert len(pi.requests) == 1


@WAITS
def test_a_message_ends_it_and_is_answered(reply: Reply) -> None:
    """Cases 154 and 211."""
    with waiting(reply, Reply("HELLO"), DONE) as (pi, begin):
        begin()
        pi.ask("say", text="are you there?", wait=True)
        assert pi.wait(expect=0)["llmCalls"] == 2
        assert [data["origin"] for data in pi.data("user.message")] == ["loop", "user", "protocol"]
        assert [data["message"] for data in pi.data("loop.notice")] == ["the wait was ended: a message came in"]
        assert pi.balanced()


def test_switching_it_off_ends_it_and_holds_for_the_session() -> None:
    with waiting(TIMED, TIMED, DONE) as (pi, begin):
        begin()
        assert "left as they are" in pi.act("update", "--continuity", "off").out
        pi.wait(expect=14)  # the reminder met the limit too, and nobody waited
        assert pi.act("close").code == 0
        assert "left as they are" in pi.act("update", "--continuity", "off").out
        pi.act("resume")
        assert pi.wait(expect=0)["llmCalls"] == 3
        assert len(pi.data("continuity.recovery")) == 1


def test_closing_ends_it_and_nothing_is_left() -> None:
    """Case 213."""
    with waiting(TIMED) as (pi, begin):
        begin()
        pi.act("close")
        loop = pi.loop()
        assert (loop["state"], loop["pauseReason"], loop["recovery"]) == ("paused", "session_closed", None)
        assert len(pi.requests) == 1
        assert pi.pis() == []


def test_a_killed_supervisor_leaves_no_request_behind() -> None:
    """C-54: nobody waits any more; a resumed session asks anew."""
    with waiting(TIMED, DONE) as (pi, begin):
        begin()
        pi.kill(pi.supervisor())
        assert pi.loop()["pauseReason"] == "supervisor_lost"
        pi.act("resume")
        assert pi.wait(expect=0)["iterationCount"] == 2
        assert len(pi.requests) == 2


def test_everybody_sees_the_wait() -> None:
    with waiting(TIMED) as (pi, begin):
        begin()
        assert pi.loop()["recovery"] == {
            "kind": "usage_limit",
            "mode": "silent",
            "attempt": 1,
            "of": 16,
            "until": INSTANT,
        }
        assert "usage limit, attempt 1 of 16, waits until " in pi.act("status").out
        assert "(usage limit: goes on in 5h, attempt 1)" in pi.act("logs").out
        (turn,) = pi.data("assistant.turn_end")  # the request is over, and said to be
        assert turn["stopReason"] == "error"
        pi.act("stop")
