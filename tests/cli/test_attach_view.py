"""What `attach` shows below the stream, and how the stream is kept above it."""

from __future__ import annotations

import threading
from datetime import UTC
from typing import Any

import pytest

from loopsup.cli.attach_bar import bar
from loopsup.cli.attach_output import LONGEST, MOST, TAIL, Above
from loopsup.cli.attach_words import Hint, Leave, meaning
from loopsup.wire.control import Request

NOW = 1_791_590_400_000  # 2026-10-10T00:00:00.000Z
LOOP: dict[str, Any] = {
    "state": "waiting",
    "iterationCount": 3,
    "maxIterations": 50,
    "nextDueAt": "2026-10-10T00:07:12.000Z",
    "deadlineAt": "2026-10-11T00:00:00.000Z",
    "pauseReason": None,
    "intent": None,
    "late": False,
    "question": None,
    "recovery": None,
    "forMs": 86_400_000,
    "calendarElapsedMs": 0,
}
QUESTION = {"id": "q1", "tool": "bash", "text": "rm -rf \x1b[2J build", "expiresAt": "2026-10-10T00:05:00.000Z"}


def shown(columns: int = 100, now: int = NOW, **changes: Any) -> list[str]:
    return bar({"loop": {**LOOP, **changes}}, now, columns, UTC).split("\n")


def test_the_countdown() -> None:
    assert shown() == [
        "waiting: the next wake is at 00:07:12 (in 7m12s) · iteration 3 of 50",
        "Enter sends a message · Ctrl-C or /quit leaves, the loop goes on",
    ]
    assert shown(now=NOW + 1000)[0] == "waiting: the next wake is at 00:07:12 (in 7m11s) · iteration 3 of 50"


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"state": "running", "nextDueAt": None}, "running: iteration 3 of 50 is under way"),
        ({"state": "completed", "nextDueAt": None}, "completed: the agent reports that the objective is reached"),
        ({"state": "running", "intent": "stop"}, "running: iteration 3 of 50 is under way · asked for: it will be"),
    ],
)
def test_any_other_state(changes: dict[str, Any], first: str) -> None:
    assert shown(200, **changes)[0].startswith(first)


def test_a_question_comes_first_and_is_harmless() -> None:
    question, state, _ = shown(question=QUESTION)
    assert question == "QUESTION (/allow or /deny answers it) bash: rm -rf \\x1b[2J build"
    assert state.startswith("waiting")


def test_a_wait_of_a_recovery() -> None:
    recovery = {"kind": "usage_limit", "mode": "silent", "attempt": 1, "of": 16, "until": "2026-10-10T05:00:00.000Z"}
    assert shown(state="running", recovery=recovery)[1].startswith("usage limit, attempt 1 of 16, waits until")


def test_before_and_without_a_loop() -> None:
    assert bar(None, NOW, 80) == "connecting"
    assert bar({"loop": None}, NOW, 80).startswith("no loop")


UNKNOWN = (
    "/{} is unknown here and was not sent; there are /allow, /deny and /quit, and a message that begins with / "
    "is typed with //"
)


@pytest.mark.parametrize(
    ("line", "asked", "means"),
    [
        (" look  ", False, Request("say", {"text": " look  "})),
        ("/allow", True, Request("answer", {"allow": True, "id": "q1"})),
        (" /deny ", True, Request("answer", {"allow": False, "id": "q1"})),
        ("/deny", False, Hint("no question is pending, so there is nothing to answer")),
        ("/quit", True, Leave()),
        ("/stop it", False, Hint(UNKNOWN.format("stop"))),
        ("/", False, Hint(UNKNOWN.format(""))),
        ("/\x1b[2J", False, Hint(UNKNOWN.format("\\x1b[2J"))),
        ("//etc/hosts is wrong", False, Request("say", {"text": "/etc/hosts is wrong"})),
    ],
)
def test_what_a_typed_line_means(line: str, asked: bool, means: Request | Leave | Hint) -> None:
    assert meaning(line, QUESTION if asked else None) == means


@pytest.mark.parametrize("columns", [1, 2, 20, 79])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert all(len(line) < max(columns, 2) for line in shown(columns, question=QUESTION))


def above() -> Above:
    return Above(lambda: None)


def test_whole_lines_are_taken_and_the_rest_stays() -> None:
    stream = above()
    stream.write("one\ntw")
    stream.line("ours")
    stream.write("o\nthr")
    assert (stream.take(), stream.tail) == ("one\nours\ntwo\n", "thr")
    assert (stream.take(), stream.rest(), stream.tail, stream.rest()) == ("", "thr\n", "", "")


def test_of_a_long_unfinished_line_the_end_is_shown() -> None:
    stream = above()
    for number in range(TAIL):
        stream.write(f"{number} ")
    assert stream.tail.endswith(f" {TAIL - 1} ")
    assert len(stream.tail) == TAIL
    stream.write("\n")
    assert stream.take().startswith("0 1 2 ")


def test_a_line_that_nobody_ends_is_ended_and_goes_on_indented() -> None:
    stream = above()
    for _ in range(3 * LONGEST // 100):
        stream.write("x" * 100)
        assert sum(map(len, stream._parts)) <= LONGEST
    first, second, *_ = stream.take().split("\n")
    assert LONGEST - 100 < len(first) <= LONGEST
    assert (second[:3], stream.tail[-3:]) == ("  x", "xxx")


def test_a_terminal_that_takes_nothing_holds_the_writer_up_until_it_does_or_is_left() -> None:
    for free in (Above.take, Above.release):
        stream = above()
        stream.write("x" * (MOST + 1) + "\n")
        wrote = threading.Event()

        def write(stream: Above = stream, wrote: threading.Event = wrote) -> None:
            stream.write("more\n")
            wrote.set()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        stream.line("ours never waits")
        assert not wrote.is_set()
        free(stream)
        assert wrote.wait(30)
        writer.join(30)
