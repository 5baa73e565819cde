"""The real Pi with a provider that fails, cuts, limits or says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopsup.ports import Accepted, Doing, Refused
from tests.support.agent_env import stamped
from tests.support.model_server import ModelServer, Reply, decision
from tests.support.pi_env import PiWorld, drive, running
from tests.support.recording import Recording

pytestmark = [pytest.mark.pi, pytest.mark.slow]


def ends(told: Recording) -> list[Any]:
    """Stop reason and kind of error of each turn."""
    return [(d["stopReason"], d.get("error", {}).get("kind")) for d in told.events("assistant.turn_end")]


def run_once(tmp_path: Path, script: list[Reply]) -> tuple[Recording, int]:
    """One iteration; what was told and the number of LLM calls."""
    out: list[Any] = []

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            assert await run.agent.prompt(stamped()) == Accepted()
            assert await run.told.until("settled") is False
            assert run.told.all("settled") == [False]
        out.extend((run.told, len(server.requests)))

    drive(tmp_path, script, scenario)
    told, calls = out
    assert len(told.events("assistant.turn_start")) == calls
    return told, calls


def test_pi_repeats_a_rate_limited_request_itself(tmp_path: Path) -> None:
    script = [Reply(status=429), Reply(status=503), Reply(tools=[decision("complete")])]
    told, calls = run_once(tmp_path, script)
    assert calls == 3
    assert ends(told) == [("error", "rate_limit"), ("error", "other"), ("toolUse", None)]
    assert told.all("doing").count(Doing.BACKOFF) == 2
    assert told.events("session.error") == []  # the run ended well


def test_a_provider_that_stays_limited_ends_the_run_with_an_error(tmp_path: Path) -> None:
    told, calls = run_once(tmp_path, [Reply(status=429)] * 3)
    assert calls == 3
    assert ends(told) == [("error", "rate_limit")] * 3
    (error,) = told.events("session.error")
    assert error["kind"] == "rate_limit"
    assert "fake error 429" in error["message"]
    assert told.names()[-2:] == ["session.error", "settled"]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401, error="invalid api key"), "auth"),
        (Reply(status=400, error="no such thing"), "other"),
        (Reply(status=400, error="context too long", code="context_length_exceeded"), "overflow"),
    ],
    ids=["401", "400", "overflow"],
)
def test_a_lasting_error_is_not_repeated(tmp_path: Path, reply: Reply, kind: str) -> None:
    told, calls = run_once(tmp_path, [reply])
    assert calls == 1
    assert ends(told) == [("error", kind)]
    assert [error["kind"] for error in told.events("session.error")] == [kind]


def test_a_cut_stream_is_an_error_and_repeated(tmp_path: Path) -> None:
    told, _ = run_once(tmp_path, [Reply("half of", cut=True), Reply(tools=[decision("complete")])])
    assert ends(told) == [("error", "network"), ("toolUse", None)]


def test_the_length_limit_is_its_own_stop_reason(tmp_path: Path) -> None:
    told, calls = run_once(tmp_path, [Reply("a long stor", finish="length", output_tokens=4096)])
    assert calls == 1
    assert ends(told) == [("length", None)]
    assert told.events("session.error") == []


def test_a_decision_cut_by_the_length_limit_does_not_count(tmp_path: Path) -> None:
    cut = Reply(tools=[decision("complete")], finish="length", output_tokens=4096)
    told, calls = run_once(tmp_path, [cut, Reply("I was cut.")])
    assert calls == 2
    assert told.all("decide") == []
    assert [data["success"] for data in told.events("tool.execution_complete")] == [False]


def test_broken_json_in_the_arguments_is_a_tool_error(tmp_path: Path) -> None:
    broken = Reply(tools=[decision("complete")], raw_arguments='{"decision": "comp')
    told, calls = run_once(tmp_path, [broken, Reply("I give up")])
    assert calls == 2
    assert told.all("decide") == []


def test_an_empty_answer_settles(tmp_path: Path) -> None:
    told, calls = run_once(tmp_path, [Reply()])
    assert calls == 1
    assert told.names() == ["assistant.turn_start", "assistant.turn_end", "settled"]
    assert ends(told) == [("stop", None)]


def test_a_compaction_is_told_and_is_no_turn(tmp_path: Path) -> None:
    """D-28: its own LLM call has no turn pair; silence during it is not suspicious."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            assert await run.told.until("settled") is False
        assert len(server.requests) == 2
        assert run.told.names() == [
            "assistant.turn_start",
            "assistant.message",
            "assistant.turn_end",
            "session.compaction",
            "settled",
        ]
        assert Doing.COMPACTION in run.told.all("doing")

    drive(tmp_path, [Reply("x" * 90_000, input_tokens=125_000), Reply("The summary.")], scenario)


def test_without_a_key_the_prompt_is_refused_in_pis_words(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        (tmp_path / "agent" / "models.json").unlink()
        (tmp_path / "agent" / "settings.json").unlink()
        async with running(world) as run:
            refused = await run.agent.prompt(stamped())
            assert isinstance(refused, Refused)
            assert not refused.busy
            assert "No " in refused.reason
            assert "model" in refused.reason.lower()
        assert server.requests == []

    drive(tmp_path, [], scenario)
