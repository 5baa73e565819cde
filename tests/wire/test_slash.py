"""`/loop …` as a person types it inside an agent."""

from __future__ import annotations

from typing import Any

import pytest

from loopsup.errors import UsageError
from loopsup.wire.control import Request
from loopsup.wire.slash import parse

DEFAULTS = {
    "minDelayMs": 60_000,
    "maxDelayMs": 86_400_000,
    "forMs": 86_400_000,
    "maxIterations": 50,
    "misfire": "once",
}


def started(objective: str, rhythm: Any = 600_000, after: int | None = None, **policy: int) -> Request:
    args = {"objective": objective, "policy": {**DEFAULTS, "rhythm": rhythm, **policy}}
    return Request("start", args if after is None else {**args, "afterMs": after})


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("status", Request("status")),
        ("  pause ", Request("pause")),
        ("resume", Request("resume")),
        ("stop", Request("stop")),
        ("update --every auto --for 48h", Request("update", {"policy": {"rhythm": "auto", "forMs": 172_800_000}})),
        ("start --every 10m watch the CI", started("watch the CI")),
        ("start --every=10m  watch", started("watch")),
        ("start\n--every 10m\twatch", started("watch")),
        (
            "start --every auto --after 5m --for 2h --max-iterations 9 --min-delay 1s --max-delay 1h watch",
            started(
                "watch", "auto", 300_000, forMs=7_200_000, maxIterations=9, minDelayMs=1000, maxDelayMs=3_600_000
            ),
        ),
        # the objective is the rest of the line, byte for byte
        ('start --every 10m "in  quotes" --for 2h $x {} % ', started('"in  quotes" --for 2h $x {} % ')),
        ("start --every 10m line\ntwo\u2028\U0001f600", started("line\ntwo\u2028\U0001f600")),
        ("start --every 10m -- --weird", started("--weird")),
        ("start --every 10m -- -- x", started("-- x")),
    ],
)
def test_a_line_is_the_request_any_client_would_send(line: str, request_: Request) -> None:
    assert parse(line) == request_


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "say what the loop shall do"),
        ("begin x", "there is no /loop 'begin'"),
        ("status now", "/loop status takes nothing after it"),
        ("stop 7", "/loop stop takes nothing after it"),
        ("start watch", "--every is missing"),
        ("start --every 10m", "the objective is missing"),
        ("start --every 10m  \t ", "the objective is missing"),
        ("start --every", "the option --every needs a value"),
        ("start --every 10 x", "--every: "),
        ("start --every 10m --every 5m x", "--every is given more than once"),
        ("start --every 10m --after auto x", "--after: 'auto' is not a duration"),
        ("start --every 10m --agent pi x", "/loop start has no option '--agent'"),
        ("start --every 10m --max-iterations 0 x", "--max-iterations: '0' is not a whole number"),
        ("update", "/loop update needs at least one of --every"),
        ("update --every 5m a new objective", "the objective of a loop never changes"),
        ("update a new objective", "the objective of a loop never changes"),
        ("update --after 5m", "/loop update has no option '--after'"),
    ],
)
def test_what_is_wrong_is_said(line: str, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert fault in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        parse("start --for 0s --max-iterations x")
    for option in ("--every", "--for", "--max-iterations", "the objective"):
        assert option in str(caught.value)
