"""The demo agent as a real process: what it looks at, and each scripted behaviour as an adapter's caller sees it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopsup.ports import AbortReason, Accepted, AgentUnableError, DecisionCall, Refused, Unknown, Verdict
from loopsup.testing.driving import STAMP, Driven, driven
from loopsup.testing.recording import Asked, AskOver, Busy, Settled
from loopsup_demo.driver import BOOT, ROOT
from tests.support.demo_harness import DemoHarness

pytestmark = pytest.mark.slow

AUTO = "[loop iteration]\nObjective (verbatim):\nwatch\nRhythm: auto (range 2m..24h)\n"
FIXED = "[loop iteration]\nObjective (verbatim):\nwatch\nRhythm: fixed 10m\n"
COMPLETE = {"decision": "complete", "summary": "all done", "evidence": "scripted"}


def drive(harness: DemoHarness, body: Callable[[Driven], Awaitable[None]]) -> None:
    """Start, do, close."""

    async def main() -> None:
        async with asyncio.timeout(100), driven(harness) as it:
            await body(it)

    asyncio.run(main())


def scripted(tmp_path: Path, script: object, body: Callable[[Driven], Awaitable[None]]) -> None:
    harness = DemoHarness(tmp_path)
    harness.raw(script)
    drive(harness, body)


def decisions(it: Driven) -> list[Any]:
    return [decided.call.arguments for decided in it.events.decisions()]


def stops(it: Driven) -> list[str]:
    return [data["stopReason"] for data in it.events.emitted("assistant.turn_end")]


# ---- looking --------------------------------------------------------------------------------------


def test_it_follows_a_status_file_to_its_end(tmp_path: Path) -> None:
    status = tmp_path / "status"

    async def body(it: Driven) -> None:
        for word in ("running 1 of 2", "passed 2 of 2"):
            status.write_text(word)
            await it.round(AUTO)
        assert decisions(it) == [
            {
                "decision": "continue",
                "summary": "status says running",
                "evidence": f"{status} says: running 1 of 2",
                "nextDelay": "2m",
            },
            {
                "decision": "complete",
                "summary": "status says passed",
                "evidence": f"{status} says: passed 2 of 2",
            },
        ]
        assert stops(it) == ["toolUse"] * 4

    drive(DemoHarness(tmp_path, "--file", "status"), body)


def test_a_fixed_rhythm_gets_no_delay_and_turns_are_as_many_as_asked(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.round(FIXED)
        assert [set(call) for call in decisions(it)] == [{"decision", "summary", "evidence"}]
        tools = [data["toolName"] for data in it.events.emitted("tool.execution_start")]
        assert tools == ["recall", "recall", "look", "loop_control"]
        assert len(stops(it)) == 4

    drive(DemoHarness(tmp_path, "--turns", "3", "--run", "sh", "-c", "exit 75"), body)


def test_a_person_gets_an_account_also_after_a_restart(tmp_path: Path) -> None:
    harness = DemoHarness(tmp_path, "--run", "echo", "12 passed")

    async def main() -> list[str]:
        async with driven(harness) as it:
            await it.round(AUTO)
        async with driven(harness, resume=it.started.conversation) as again:
            await again.round("what happened?", stamp=None)
            return [data["text"] for data in again.events.emitted("assistant.message")]

    assert asyncio.run(main()) == [
        "I am the demo agent and have no model. When a loop wakes me I look at `echo '12 passed'`. This is message 2 "
        "to me. I have looked 1×; the last time: `echo '12 passed'` ended with exit status 0; last output: 12 passed"
    ]


def test_an_abort_ends_the_command_it_runs(tmp_path: Path) -> None:
    code = "import pathlib, time; pathlib.Path('up').touch(); time.sleep(60)"

    async def body(it: Driven) -> None:
        await it.accepted(FIXED)
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.01)
        assert it.agent.pid is not None
        [command] = psutil.Process(it.agent.pid).children()
        await it.agent.abort(AbortReason.USER)
        await it.events.wait_for("settled", lambda: it.events.settlements() == [True])
        assert not command.is_running()
        assert stops(it) == ["aborted"]

    drive(DemoHarness(tmp_path, "--run", sys.executable, "-c", code), body)


def test_it_does_not_import_what_lies_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')")
    (tmp_path / "status").write_text("green")

    async def body(it: Driven) -> None:
        await it.round(FIXED)
        assert [call["decision"] for call in decisions(it)] == ["complete"]

    drive(DemoHarness(tmp_path, "--file", "status"), body)


def test_a_conversation_that_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    harness = DemoHarness(tmp_path, "--file", "status")

    async def main() -> None:
        async with driven(harness) as it:
            conversation = it.started.conversation
        (tmp_path / "state" / "demo.jsonl").unlink()
        with pytest.raises(AgentUnableError, match=r"exit status 1: the conversation .* is not in"):
            async with driven(harness, resume=conversation):
                pass

    asyncio.run(main())


# ---- scripted behaviour ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "stop"),
    [("omit", ["stop"]), ("length", ["length"]), ("empty", ["stop"]), ("invalid", ["toolUse", "stop"])],
)
def test_no_valid_decision(behaviour: str, stop: list[str], tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        it.events.policy = _refuse
        await it.round()
        assert (stops(it), it.events.settlements()) == (stop, [False])
        assert decisions(it) == ([{"decision": "perhaps"}] if behaviour == "invalid" else [])

    scripted(tmp_path, [behaviour], body)


def test_an_error(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.round()
        error = {"kind": "rate_limit", "message": "429: later"}
        assert [data.get("error") for data in it.events.emitted("assistant.turn_end")] == [error]
        assert it.events.emitted("session.error") == [error]

    scripted(tmp_path, [{"do": "error", "kind": "rate_limit", "message": "429: later"}], body)


def test_one_behaviour_for_each_prompt_and_the_last_for_the_rest(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        for _ in range(3):
            await it.round()
        assert len(decisions(it)) == 2

    scripted(tmp_path, ["omit", "decide"], body)


def test_twice_in_one_turn(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.round()
        assert (decisions(it), stops(it)) == ([COMPLETE, COMPLETE], ["toolUse"])

    scripted(tmp_path, ["twice"], body)


@pytest.mark.parametrize(
    ("allow", "text", "decision"),
    [
        (True, "", COMPLETE),
        (False, "nobody answered", {"decision": "block", "summary": "not permitted", "evidence": "nobody answered"}),
    ],
)
def test_it_asks_and_acts_on_the_answer(allow: bool, text: str, decision: object, tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.accepted()
        await it.events.wait_for("ask", lambda: any(isinstance(call, Asked) for call in it.events.calls))
        [asked] = [call.question for call in it.events.calls if isinstance(call, Asked)]
        await it.agent.answer("another question", True, "")
        await it.agent.answer(asked.id, allow, text)
        await it.events.wait_for("settled", lambda: bool(it.events.settlements()))
        assert decisions(it) == [decision]

    scripted(tmp_path, ["ask"], body)


def test_a_question_goes_away_with_an_abort(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.accepted()
        await it.events.wait_for("ask", lambda: any(isinstance(call, Asked) for call in it.events.calls))
        [asked] = [call.question for call in it.events.calls if isinstance(call, Asked)]
        await it.agent.abort(AbortReason.USER)
        await it.events.wait_for("settled", lambda: it.events.settlements() == [True])
        assert [call for call in it.events.calls if isinstance(call, AskOver)] == [AskOver(asked.id, "cancelled")]

    scripted(tmp_path, ["ask"], body)


def test_a_flood_of_deltas(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.round()
        assert len(it.events.emitted("assistant.message_delta")) == 5000

    scripted(tmp_path, [{"do": "flood", "count": 5000}], body)


def test_a_late_decision_has_no_stamp(tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def body(it: Driven) -> None:
        await it.round()
        assert decisions(it) == []
        go.touch()
        await it.events.wait_for("decide", lambda: bool(it.events.decisions()))
        assert [decided.call for decided in it.events.decisions()] == [DecisionCall(None, COMPLETE)]
        assert it.events.settlements() == [False]

    scripted(tmp_path, [{"do": "late", "again_for": str(go)}], body)


def test_a_start_by_itself(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.round()
        await it.events.wait_for("a second settled", lambda: len(it.events.settlements()) == 2)
        marks = [type(call) for call in it.events.calls if isinstance(call, Busy | Settled)]
        assert marks == [Settled, Busy, Settled]

    scripted(tmp_path, ["self_start"], body)


def test_a_decision_that_lingers_settles_when_told(tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def body(it: Driven) -> None:
        await it.accepted()
        await it.events.wait_for("decide", lambda: bool(it.events.decisions()))
        assert it.events.settlements() == []
        go.touch()
        await it.events.wait_for("settled", lambda: it.events.settlements() == [False])

    scripted(tmp_path, [{"do": "decide", "linger_for": str(go)}], body)


def test_waiting_for_a_file_before_the_response(tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def body(it: Driven) -> None:
        await it.working()
        assert it.events.emitted("assistant.message_delta") == []
        go.touch()
        await it.events.wait_for("settled", lambda: it.events.settlements() == [False])

    scripted(tmp_path, [{"do": "omit", "wait_for": str(go)}], body)


def test_a_refusal(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        assert await it.hand_over("go") == Refused("not today", busy=True)
        await it.round()
        assert it.events.settlements() == [False]

    scripted(tmp_path, [{"do": "refuse", "busy": True, "reason": "not today"}, "omit"], body)


@pytest.mark.parametrize(
    ("behaviour", "outcome", "reason"),
    [
        ({"do": "crash"}, Accepted(), "signal 9 (SIGKILL)"),
        ({"do": "crash", "exit": 5}, Accepted(), "exit status 5"),
        (
            {"do": "vanish", "signal": signal.SIGTERM},
            Unknown("the demo agent ended before it answered (signal 15 (SIGTERM))"),
            "signal 15 (SIGTERM)",
        ),
    ],
)
def test_a_crash_and_the_next_process_goes_on(
    behaviour: dict[str, Any], outcome: object, reason: str, tmp_path: Path
) -> None:
    harness = DemoHarness(tmp_path)
    harness.raw([behaviour, "decide"])

    async def main() -> None:
        async with driven(harness) as it:
            assert await it.hand_over("go") == outcome
            await it.events.wait_for("lost", lambda: bool(it.events.losses()))
            assert it.events.losses() == [reason]
        async with driven(harness, resume=it.started.conversation) as again:
            await again.round()
            assert decisions(again) == [COMPLETE]

    asyncio.run(main())


def test_failing_starts_and_then_one_that_works(tmp_path: Path) -> None:
    harness = DemoHarness(tmp_path)
    harness.raw({"start": [{"exit": 3, "stderr": "no licence found"}, {}], "prompts": ["decide"]})

    async def main() -> None:
        with pytest.raises(AgentUnableError, match=r"did not come up \(exit status 3: no licence found\)"):
            async with driven(harness):
                pass
        async with driven(harness) as it:
            await it.round()
            assert [decided.call.stamp for decided in it.events.decisions()] == [STAMP]

    asyncio.run(main())


def test_a_start_that_takes_long_can_be_closed(tmp_path: Path) -> None:
    harness = DemoHarness(tmp_path)
    harness.raw({"start": [{"wait_for": str(tmp_path / "never")}]})

    async def main() -> None:
        async with asyncio.timeout(0.5), driven(harness):
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_script_that_makes_no_sense_is_a_loud_end(tmp_path: Path) -> None:
    async def body(it: Driven) -> None:
        await it.hand_over("go")
        await it.events.wait_for("lost", lambda: bool(it.events.losses()))
        assert it.events.losses() == ["exit status 1: KeyError: 'dance'"]

    scripted(tmp_path, ["dance"], body)


def test_the_agent_ends_when_its_adapter_is_gone(tmp_path: Path) -> None:
    """The supervisor was killed: nobody closes anything, the pipes just end."""
    opening = {"do": "open", "id": "x", "resume": False, "history": str(tmp_path / "h"), "args": ["--file", "s"]}
    prompt = {"do": "prompt", "id": "m", "text": "go", "loop": True}
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BOOT, str(ROOT)],
        input=f"{json.dumps(opening)}\n{json.dumps(prompt)}\n".encode(),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    ).stdout
    assert json.loads(said.split(b"\n")[0]) == {"is": "ready", "id": "x"}


def _refuse(call: DecisionCall) -> Verdict:
    return Verdict(False, "that is no decision")
