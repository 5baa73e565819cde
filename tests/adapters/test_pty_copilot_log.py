"""Copilot's own log, as the pty adapter reads it while the terminal interface runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loopsup.ports import Doing
from loopsup.testing.recording import Did, Emitted, RecordingEvents
from loopsup_pty.copilot import CopilotVoice, log_file


def line(kind: str, agent: str | None = None, **data: Any) -> str:
    more = {} if agent is None else {"agentId": agent}
    return json.dumps({"type": kind, "data": data, "id": "x", **more}) + "\n"


TURN = [
    line("user.message", content="go"),
    line("assistant.turn_start", turnId="0"),
    line(
        "assistant.message", content="I look.", toolRequests=[{"toolCallId": "c1", "name": "bash", "arguments": {}}]
    ),
    line("tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "ls"}),
]
ANSWER = [
    line("tool.execution_complete", toolCallId="c1", success=True, result={"content": "a b"}),
    line("assistant.turn_end", turnId="0"),
    line("assistant.turn_start", turnId="1"),
    line("assistant.turn_start", agent="helper", turnId="7"),
    line("assistant.message", content="It is green.", toolRequests=[]),
    line("assistant.turn_end", turnId="1"),
]


class Log:
    """The file and its reader."""

    def __init__(self, tmp: Path, before: str = "") -> None:
        self.file = tmp / "events.jsonl"
        if before:
            self.file.write_text(before)
        self.events = RecordingEvents()
        self.voice = CopilotVoice(self.file, self.events)

    def write(self, *lines: str) -> None:
        with self.file.open("a") as file:
            file.write("".join(lines))
        self.voice.poll()

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        return [(call.kind, dict(call.data)) for call in self.events.calls if isinstance(call, Emitted)]


def test_a_response_is_told_turn_by_turn(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.voice.mark()
    assert (log.voice.took(), log.voice.works()) == (False, False)
    log.write(*TURN)
    assert (log.voice.took(), log.voice.works()) == (True, True)
    assert log.told() == [], "nothing is told before the response is taken for one"
    log.voice.begin()
    assert log.voice.doing() is Doing.TOOL
    log.write(*ANSWER)
    assert log.voice.works() is False
    log.voice.end("stop", None)
    kinds = [kind for kind, _ in log.told()]
    assert kinds == [
        "assistant.turn_start",
        "assistant.message",
        "tool.execution_start",
        "tool.execution_complete",
        "assistant.turn_end",
        "assistant.turn_start",
        "assistant.message",
        "assistant.turn_end",
    ]
    data = [data for _, data in log.told()]
    assert data[1]["text"] == "I look."
    assert data[1]["toolRequests"] == [{"toolCallId": "c1", "toolName": "bash", "arguments": {}}]
    assert data[3] == {"toolCallId": "c1", "toolName": "bash", "success": True, "result": "a b"}
    assert (data[4]["stopReason"], data[7]["stopReason"]) == ("toolUse", "stop")
    assert data[0]["turnId"] != data[5]["turnId"]
    assert [call.what for call in log.events.calls if isinstance(call, Did)][-1] is Doing.NOTHING


def test_what_stood_there_before_is_not_told_again(tmp_path: Path) -> None:
    log = Log(tmp_path, "".join([*TURN, *ANSWER]))
    log.voice.poll()
    log.voice.begin()
    assert (log.told(), log.voice.works()) == ([], False)


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(TURN[0][:20])
    assert log.voice.works() is False
    log.write(TURN[0][20:])
    assert log.voice.works() is True


def test_a_permission_is_a_question_until_it_is_answered(tmp_path: Path) -> None:
    log = Log(tmp_path)
    asked = {"kind": "shell", "intention": "make a file", "fullCommandText": "touch x"}
    log.write(*TURN, line("permission.requested", requestId="r1", permissionRequest=asked))
    assert log.voice.asks() == "shell: make a file / touch x"
    log.write(line("permission.completed", requestId="r1", result={"kind": "approved"}))
    assert log.voice.asks() is None


def test_an_abort_and_an_error_end_the_work_and_close_what_was_open(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.voice.begin()
    log.write(*TURN, line("abort", reason="user_initiated"))
    assert log.voice.works() is False
    log.voice.end("aborted", None)
    assert [kind for kind, _ in log.told()][-2:] == ["tool.execution_complete", "assistant.turn_end"]
    assert log.told()[-1][1]["stopReason"] == "aborted"
    log.voice.begin()
    log.write(line("assistant.turn_start", turnId="1"), line("assistant.turn_end", turnId="1"))
    assert log.voice.works() is True, "a turn without an answer goes on, or fails"
    log.write(line("session.error", errorType="query", message="400 no more"))
    assert log.voice.works() is False
    assert log.told()[-1] == ("session.error", {"kind": "agent", "message": "400 no more"})


def test_where_the_log_is() -> None:
    assert log_file({"COPILOT_HOME": "/c"}, "s") == Path("/c/session-state/s/events.jsonl")
    assert log_file({"HOME": "/h"}, "s") == Path("/h/.copilot/session-state/s/events.jsonl")
