"""What goes wrong with the model, told as it is: none of it is taken for success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopsup.wire import events as ev
from tests.support.agent_env import stamped
from tests.support.copilot_env import CopilotWorld, drive, running
from tests.support.model_server import ModelServer, Reply, decision

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

RETRY_NOW = {"retry-after": "0"}


def told_of(root: Path, script: list[Reply]) -> tuple[list[Any], list[Any], int]:
    """The turn ends, the errors, and the number of requests of one prompt; turns are requests (A-08)."""
    found: list[Any] = []

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.round(stamped())
            assert run.told.all("settled") == [False]
            assert len(run.told.events(ev.TURN_START)) == len(server.requests)
            found.extend((run.told.events(ev.TURN_END), run.told.events(ev.SESSION_ERROR), len(server.requests)))

    drive(root, script, scenario)
    return found[0], found[1], found[2]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (
            Reply(status=429, headers={"retry-after": "300"}, error="slow down"),
            {"kind": "rate_limit", "message": "429 slow down"},
        ),
        (Reply(status=400, error="no such model"), {"kind": "other", "message": "400 no such model"}),
        (Reply(status=403, error="not you"), {"kind": "auth"}),
    ],
    ids=["rate limit with a long wait", "bad request", "forbidden"],
)
def test_an_error_that_is_not_repeated_is_told_at_once(tmp_path: Path, reply: Reply, error: dict[str, str]) -> None:
    ends, errors, requests = told_of(tmp_path, [reply])
    assert requests == 1
    assert [end["stopReason"] for end in ends] == ["error"]
    assert ends[0]["error"]["kind"] == error["kind"]
    assert len(errors) == 1
    assert errors[0].items() >= error.items()


def test_a_rate_limit_is_repeated_and_each_attempt_is_a_turn(tmp_path: Path) -> None:
    script = [Reply(status=429, headers={"retry-after": "1"}), Reply(tools=[decision("continue")])]
    ends, errors, _ = told_of(tmp_path, script)
    assert [(end["stopReason"], end.get("error", {}).get("kind")) for end in ends] == [
        ("error", "rate_limit"),
        ("toolUse", None),
    ]
    assert errors == []


def test_a_refused_key_is_an_error_of_authentication(tmp_path: Path) -> None:
    ends, errors, requests = told_of(tmp_path, [Reply(status=401, error="bad key")] * 3)
    assert requests == 3
    assert [end["error"]["kind"] for end in ends] == ["auth"] * 3
    assert [error["kind"] for error in errors] == ["auth"]


def test_a_server_that_fails_for_good_is_an_error(tmp_path: Path) -> None:
    ends, errors, requests = told_of(tmp_path, [Reply(status=503, error="overheated", headers=RETRY_NOW)] * 6)
    assert requests == 6
    assert [end["stopReason"] for end in ends] == ["error"] * 6
    assert len(errors) == 1
    assert "503" in errors[0]["message"]


def test_a_stream_that_is_cut_is_repeated_and_its_rest_is_no_message(tmp_path: Path) -> None:
    ends, errors, _ = told_of(tmp_path, [Reply("half", cut=True), Reply("whole")])
    assert [end["stopReason"] for end in ends] == ["error", "stop"]
    assert ends[0]["error"]["kind"] == "network"
    assert errors == []


def test_an_empty_answer_is_an_error(tmp_path: Path) -> None:
    _, errors, requests = told_of(tmp_path, [Reply()])
    assert requests == 1
    assert [error["kind"] for error in errors] == ["other"]
    assert "No response" in errors[0]["message"]


def test_a_continuation_that_copilot_hides_is_shown(tmp_path: Path) -> None:
    """It asks for the rest by itself, and keeps the part: both are turns, the part is told."""
    script = [Reply("part one ", finish="length"), Reply("part two ", finish="length"), Reply("the end")]
    ends, errors, requests = told_of(tmp_path, script)
    assert requests == 3
    assert [end["stopReason"] for end in ends] == ["length", "length", "stop"]
    assert errors == []


def test_a_provider_that_is_not_there(tmp_path: Path) -> None:
    """Five attempts take Copilot 23 s; the first of them is seen, and the abort ends it."""
    from loopsup.ports import AbortReason, Doing

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        world.env["COPILOT_PROVIDER_BASE_URL"] = "http://127.0.0.1:9/v1"
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until_found(
                lambda: [one for one in run.told.all("doing") if one is Doing.BACKOFF], "backoff"
            )
            await run.agent.abort(AbortReason.USER)
            assert await run.told.until("settled") is True
            assert run.told.events(ev.TURN_END)[0]["error"]["kind"] == "network"

    drive(tmp_path, [], scenario)
