"""What may reach a terminal, how wide, and how the status and events read."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC
from typing import Any

import pytest

from loopsup.cli import render
from loopsup.cli.screen import Screen

NOW = 1_791_590_400_000  # 2026-10-10T00:00:00.000Z
MINUTE = 60_000
HOSTILE = "ok\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt.exe\u2066x\u2069\ud800\u2028\u200b\x7f\r\b\x00"


def test_safe_shows_every_live_character_as_its_escape() -> None:
    assert render.safe(HOSTILE) == (
        "ok\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202etxt.exe\\u2066x\\u2069\\ud800\\u2028\\u200b\\x7f\\x0d\\x08\\x00"
    )


@pytest.mark.parametrize(
    "code",
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        *(0x61C, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041),
    ],
)
def test_safe_leaves_no_live_character(code: int) -> None:
    assert chr(code) not in render.safe(f"a{chr(code)}b")
    kept = chr(code) in "\n\t"
    assert (chr(code) in render.safe(f"a{chr(code)}b", multiline=True)) is kept


@pytest.mark.parametrize("text", ["", "plain", "olá — ação", "日本語", "👩‍👩‍👧 می‌خواهم", "back\\slash \\x1b"])
def test_safe_keeps_ordinary_text(text: str) -> None:
    assert render.safe(text) == text


def test_safe_keeps_lines_only_where_asked() -> None:
    assert render.safe("a\r\nb\n\tc") == "a\\x0d\\x0ab\\x0a\\x09c"
    assert render.safe("a\r\nb\n\tc\rd", multiline=True) == "a\nb\n\tc\\x0dd"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("exactly 10", 10, "exactly 10"),
        ("more than 10", 10, "more than…"),
        ("two\n lines\t here", 30, "two lines here"),
        ("日本語テキスト", 7, "日本語…"),
        ("日本語", 6, "日本語"),
        ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("\x1b[31mred", 20, "\\x1b[31mred"),
        ("x" * 10_000_000, 5, "xxxx…"),
        ("a" + " " * 1000 + "b", 5, "a…"),
    ],
)
def test_one_line(text: str, width: int, shown: str) -> None:
    assert render.one_line(text, width) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0s"),
        (999, "0s"),
        (9 * MINUTE + 5000, "9m5s"),
        (10 * MINUTE + 5000, "10m"),
        (90 * MINUTE, "1h30m"),
        (47 * 60 * MINUTE, "47h"),
        (49 * 60 * MINUTE + MINUTE, "2d1h"),
        (-5, "0s"),
    ],
)
def test_span(ms: int, shown: str) -> None:
    assert render.span(ms) == shown


def test_a_started_second_of_waiting_counts() -> None:
    assert [render.wait_span(ms) for ms in (0, 1, 1000, 1001)] == ["0s", "1s", "1s", "2s"]


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2026-10-10T07:08:09.000Z", "07:08:09"),
        ("2026-10-11T07:08:09.000Z", "2026-10-11 07:08:09"),
        (NOW, "00:00:00"),
    ],
)
def test_local_time(at: str | int, shown: str) -> None:
    assert render.local_time(at, NOW, UTC) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_only_on_a_terminal_that_wants_it(stream: io.StringIO, env: dict[str, str], wanted: bool) -> None:
    assert render.colour_wanted(stream, env) is wanted


def test_paint_colours_line_by_line() -> None:
    assert render.paint("a\n\nb", "red", True) == "\x1b[1;31ma\x1b[0m\n\n\x1b[1;31mb\x1b[0m"
    assert render.paint("a", "red", False) == "a"
    assert render.paint("a", None, True) == "a"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "── ação → 日 ──\n"),
        ("ascii", "-- a\\xe7\\xe3o -> \\u65e5 --\n"),
        ("latin-1", "-- ação -> \\u65e5 --\n"),
    ],
)
def test_write_fits_any_encoding(encoding: str, shown: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    render.write("── ação → 日 ──", stream=stream, flush=True)
    assert raw.getvalue().decode(encoding) == shown


# ---- the status -----------------------------------------------------------------------------------


def status(loop: dict[str, Any] | None = None, **session: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "proj",
        "id": "s1",
        "agent": "pi",
        "agentSessionId": "s1",
        "file": "/s/1.jsonl",
        "cwd": "/home/me/proj",
        "supervisor": {"alive": True, "responding": True, "pid": 42},
        "clients": 0,
        "problem": None,
    }
    return {"version": 1, "session": base | session, "loop": loop}


def loop(**change: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "l1",
        "objective": "watch the CI run of PR 42",
        "state": "waiting",
        "pauseReason": None,
        "intent": None,
        "late": False,
        "iterationCount": 3,
        "maxIterations": 50,
        "protocolRetryCount": 1,
        "promptsSent": 4,
        "llmCalls": 11,
        "rhythm": {"kind": "fixed", "everyMs": 10 * MINUTE},
        "minDelayMs": MINUTE,
        "maxDelayMs": 24 * 60 * MINUTE,
        "forMs": 24 * 60 * MINUTE,
        "startedAt": "2026-10-09T23:19:00.000Z",
        "deadlineAt": "2026-10-10T23:19:00.000Z",
        "calendarElapsedMs": 41 * MINUTE,
        "deadlineRemainingMs": 24 * 60 * MINUTE - 41 * MINUTE,
        "nextDueAt": "2026-10-10T00:07:00.000Z",
        "lastDecision": {
            "decision": "continue",
            "summary": "two jobs still run",
            "evidence": "gh run view: 2 in progress",
            "nextDelayMs": None,
            "iteration": 3,
            "at": "2026-10-09T23:57:00.000Z",
        },
        "question": None,
        "recovery": None,
        "lastAttention": None,
    }
    return base | change


def text(value: dict[str, Any], width: int = 100) -> str:
    return render.status_text(value, now=NOW, width=width, zone=UTC)


def test_status_of_a_waiting_loop() -> None:
    assert text(status(loop(), clients=2)) == "\n".join(
        [
            "waiting: the next wake is at 00:07:00 (in 7m)",
            "session    proj · pi · supervisor alive, 2 following (pid 42) · /home/me/proj",
            "objective  watch the CI run of PR 42",
            "progress   iteration 3 of 50 · every 10m",
            "time       41m elapsed of 24h · 23h19m left, until 23:19:00",
            "calls      4 prompts sent · 11 LLM calls · 1 of 5 reminders used",
            "decision   continue (iteration 3, 2026-10-09 23:57:00)",
            "summary    two jobs still run",
            "evidence   gh run view: 2 in progress",
        ]
    )


def test_status_without_a_loop() -> None:
    quiet = {"alive": False, "responding": False, "pid": None}
    assert text(status(supervisor=quiet)) == (
        "session    proj · pi · no supervisor · /home/me/proj\nloop       none; `loopsup start` gives it one"
    )


NEXT = "; `loopsup start` begins the next loop in this conversation"


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"nextDueAt": None}, "waiting: no wake fits before its time is used up (23:19:00)"),
        ({"state": "queued"}, "queued: an iteration is due and starts as soon as the agent is free"),
        ({"state": "running"}, "running: iteration 3 of 50 is under way"),
        (
            {"state": "running", "intent": "stop"},
            "running: iteration 3 of 50 is under way\nasked for: it will be stopped when this iteration has settled",
        ),
        (
            {"state": "queued", "late": True, "nextDueAt": "2026-10-09T23:59:00.000Z"},
            "queued: an iteration is due and starts as soon as the agent is free\n"
            "LATE: this wake was due at 2026-10-09 23:59:00 (1m ago) and has not been handed over",
        ),
        ({"state": "completed"}, f"completed: the agent reports that the objective is reached{NEXT}"),
        ({"state": "failed"}, f"failed: the agent reports that the objective cannot be reached{NEXT}"),
        ({"state": "stopped"}, f"stopped: you ended it{NEXT}"),
    ],
)
def test_first_lines_of_every_state(change: dict[str, Any], first: str) -> None:
    assert text(status(loop(**change)), 200).split("\nsession ")[0] == first


def test_a_closed_session_is_taken_up_by_its_name() -> None:
    quiet = {"alive": False, "responding": False, "pid": None}
    assert text(status(loop(state="stopped"), supervisor=quiet), 200).split("\n")[0] == (
        "stopped: you ended it; `loopsup start --session proj` goes on in this conversation, "
        "`loopsup start` makes a new one"
    )


@pytest.mark.parametrize(("elapsed", "offered"), [(24, "2d"), (30, "2d"), (40, "3d"), (47, "3d"), (60, "4d")])
def test_the_time_offered_lies_beyond_the_time_used(elapsed: int, offered: str) -> None:
    late = loop(state="paused", pauseReason="duration_limit", calendarElapsedMs=elapsed * 60 * MINUTE)
    assert f"`loopsup update --for {offered}` gives it more" in text(status(late), 200)


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        ("user", "paused: you paused it. `loopsup resume` goes on."),
        ("blocked", "paused: the agent is blocked and needs you. Clear it up, then `loopsup resume`."),
        (
            "duration_limit",
            "paused: its time is used up. `loopsup update --for 2d` gives it more (counted from its start), "
            "then `loopsup resume`.",
        ),
        (
            "iteration_limit",
            "paused: all its iterations are used up. `loopsup update --max-iterations 100` gives it more, "
            "then `loopsup resume`.",
        ),
        (
            "protocol_error",
            "paused: the agent did not end its iteration with a valid decision, or could not be run. "
            "Look at `loopsup history` and `loopsup logs`, then `loopsup resume`.",
        ),
        (
            "session_closed",
            "paused: its session was closed. `loopsup resume` opens the conversation again and goes on.",
        ),
        (
            "fork",
            "paused: the conversation was forked or moved to another branch. "
            "`loopsup resume` goes on from where the conversation stands now.",
        ),
        ("interrupted", "paused: its iteration was aborted. `loopsup resume` goes on with the next iteration."),
        (
            "supervisor_lost",
            "paused: its supervisor ended without closing (crash, kill or power loss); nothing fires meanwhile. "
            "`loopsup resume` goes on.",
        ),
        (
            "unknown_version",
            "paused: its state was written by another version of loopsup. "
            "Use that version; here only `loopsup status` and `loopsup stop` work.",
        ),
        ("a_new_one", "paused: a_new_one. `loopsup resume` goes on."),
    ],
)
def test_every_pause_reason_says_what_to_do_next(reason: str, first: str) -> None:
    paused = loop(state="paused", pauseReason=reason, nextDueAt=None)
    assert text(status(paused), 200).split("\n")[0] == first


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        (
            "user",
            "paused: you paused it. All its iterations are used: `loopsup update --max-iterations 100` gives it "
            "more, then `loopsup resume`.",
        ),
        (
            "blocked",
            "paused: the agent is blocked and needs you. Clear it up, give it more iterations, as all are used "
            "(`loopsup update --max-iterations 100`), then `loopsup resume`.",
        ),
        (
            "duration_limit",
            "paused: its time is used up. `loopsup update --for 2d --max-iterations 100` gives it more of both, as "
            "all its iterations are used, too; then `loopsup resume`.",
        ),
        (
            "iteration_limit",
            "paused: all its iterations are used up. `loopsup update --max-iterations 100` gives it more, "
            "then `loopsup resume`.",
        ),
    ],
)
def test_a_resume_that_would_be_refused_is_not_offered(reason: str, first: str) -> None:
    paused = loop(state="paused", pauseReason=reason, nextDueAt=None, iterationCount=50)
    assert text(status(paused), 200).split("\n")[0] == first


@pytest.mark.parametrize(
    ("count", "first"),
    [
        (
            3,
            "paused: its session was closed. Its time is used up meanwhile: `loopsup update --for 2d` gives it more, "
            "then `loopsup resume`.",
        ),
        (
            50,
            "paused: its session was closed. Its time and all its iterations are used up meanwhile: "
            "`loopsup update --for 2d --max-iterations 100` gives it more of both, then `loopsup resume`.",
        ),
    ],
)
def test_nor_one_after_a_deadline_that_passed_while_nobody_was_there(count: int, first: str) -> None:
    paused = loop(
        state="paused",
        pauseReason="session_closed",
        nextDueAt=None,
        iterationCount=count,
        calendarElapsedMs=24 * 60 * MINUTE,
        deadlineRemainingMs=0,
    )
    assert text(status(paused), 300).split("\n")[0] == first


@pytest.mark.parametrize("state", ["completed", "failed", "stopped"])
def test_an_ended_loop_has_no_time_left_to_speak_of(state: str) -> None:
    assert "\ntime       41m of 24h\n" in text(status(loop(state=state)))


def test_everything_else_a_status_can_have() -> None:
    full = loop(
        state="paused",
        pauseReason="protocol_error",
        rhythm={"kind": "auto", "minDelayMs": MINUTE, "maxDelayMs": 60 * MINUTE},
        deadlineRemainingMs=0,
        promptsSent=1,
        llmCalls=1,
        lastDecision=None,
        question={
            "id": "q",
            "kind": "permission",
            "tool": "bash",
            "text": "rm -rf build",
            "since": "2026-10-10T00:00:00.000Z",
            "expiresAt": "2026-10-10T00:05:00.000Z",
        },
        recovery={"kind": "retry", "mode": "silent", "attempt": 1, "of": 3, "until": None},
        lastAttention={
            "status": "protocol_error",
            "evidence": {"source": "extension", "text": "agent exited with 1"},
        },
    )
    silent = {"alive": True, "responding": False, "pid": 7}
    shown = text(status(full, problem="3 damaged lines", supervisor=silent), 200)
    assert shown.split("\n")[1:] == [
        "session    proj · pi · supervisor does not answer (pid 7) · /home/me/proj",
        "PROBLEM    3 damaged lines",
        "PROBLEM    the supervisor does not answer; this is the last state in its journal",
        "objective  watch the CI run of PR 42",
        "progress   iteration 3 of 50 · the agent chooses the delay, 1m to 1h",
        "time       41m elapsed of 24h · none left since 23:19:00",
        "calls      1 prompt sent · 1 LLM call · 1 of 5 reminders used",
        "decision   none yet",
        "because    agent exited with 1",
        "QUESTION   bash: rm -rf build",
        "           `loopsup answer allow` or `loopsup answer deny`, until 00:05:00",
        "recovery   retry, attempt 1 of 3",
    ]


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (
            {"kind": "usage_limit", "mode": "silent", "attempt": 1, "of": 16, "until": "2026-10-10T04:00:00.000Z"},
            "usage limit, attempt 1 of 16, waits until 04:00:00, 4h left",
        ),
        ({"kind": "length", "mode": "silent", "attempt": 3, "of": None, "until": None}, "output limit, attempt 3"),
        (
            {"kind": "stream", "mode": "redelivered", "attempt": 2, "of": 12, "until": None},
            "broken answer, attempt 2 of 12 (redelivered)",
        ),
    ],
)
def test_a_recovery_in_words(recovery: dict[str, Any], words: str) -> None:
    assert text(status(loop(state="running", recovery=recovery))).split("\n")[-1] == f"recovery   {words}"


def test_hostile_words_in_a_status_stay_words() -> None:
    decision = loop()["lastDecision"] | {"summary": HOSTILE, "evidence": HOSTILE + "\nstate: completed"}
    shown = text(status(loop(objective=HOSTILE, lastDecision=decision), name="proj", cwd="/x\x1b[31m"))
    assert render.safe(shown, multiline=True) == shown
    assert [line.split(" ")[0] for line in shown.split("\n")][-4:] == ["decision", "summary", "evidence", ""]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_row_is_wider_than_the_terminal(width: int) -> None:
    wide = loop(objective="日本語" * 50)
    for change in ({}, {"state": "paused", "pauseReason": "duration_limit"}, {"state": "completed"}):
        rows = text(status(wide | change, problem="x" * 200), width).split("\n")
        assert max(map(render.columns, rows)) <= width


def test_long_words_are_wrapped_and_then_referred_to_json() -> None:
    decision = loop()["lastDecision"] | {"evidence": "seen " * 40}
    shown = text(status(loop(objective="word " * 200, lastDecision=decision)), 80).split("\n")
    start = next(n for n, line in enumerate(shown) if line.startswith("objective "))
    assert [line[:11].strip() for line in shown[start : start + 5]] == ["objective", "", "", "", ""]
    assert shown[start + 3].endswith("word wo…")
    assert shown[start + 4] == " " * 11 + "(`--json` has all of it)"
    assert " ".join(shown).count("seen") == 40


@pytest.mark.parametrize(
    ("line", "width", "shown"),
    [
        ("one two three", 8, ["one two", "  three"]),
        ("short", 20, ["short"]),
        ("", 20, [""]),
        ("abcdefghij", 4, ["abcd", "  ef", "  gh", "  ij"]),
        ("日本語 日本語", 7, ["日本語", "  日本", "  語"]),
    ],
)
def test_wrap(line: str, width: int, shown: list[str]) -> None:
    assert render.wrap(line, width, after="  ") == shown


# ---- events ---------------------------------------------------------------------------------------


def event(kind: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"v": 1, "seq": 1, "at": "2026-10-10T00:00:00.000Z", "type": kind, "data": data} | more


ATTENTION = {
    "version": 1,
    "status": "blocked",
    "summary": "no credentials",
    "evidence": {"source": "agent", "text": "gh auth status: not logged in"},
    "iterationCount": 3,
    "maxIterations": 50,
    "calendarElapsedMs": 41 * MINUTE,
}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            event("user.message", {"messageId": "m", "origin": "loop", "text": "…"}, iteration=3),
            "── iteration 3 of 50 · 00:00:00 ──",
        ),
        (
            event("user.message", {"messageId": "m", "origin": "protocol", "text": "…"}, iteration=3),
            "── reminder: iteration 3 has no valid decision yet · 00:00:00 ──",
        ),
        (
            event("user.message", {"messageId": "m", "origin": "user", "text": "also\nfix b"}),
            "── you · 00:00:00 ──\n  also\n  fix b",
        ),
        (event("assistant.message", {"turnId": "t", "text": "one\ntwo\n", "toolRequests": []}), "  one\n  two"),
        (event("assistant.message", {"turnId": "t", "text": " ", "toolRequests": [{}]}), None),
        (
            event("assistant.message", {"text": "hi\nthere"}, agentId="a"),
            "  [sub-agent] hi there",
        ),
        (event("assistant.turn_start", {"turnId": "t"}), None),
        (event("assistant.turn_end", {"turnId": "t", "stopReason": "stop"}), None),
        (
            event("assistant.turn_end", {"turnId": "t", "stopReason": "length"}),
            "  (the answer was cut off at the model's length limit)",
        ),
        (
            event("assistant.turn_end", {"stopReason": "error", "error": {"kind": "429", "message": "slow down"}}),
            "  (model error) slow down",
        ),
        (
            event(
                "tool.execution_start", {"toolCallId": "c", "toolName": "bash", "arguments": {"command": "ls\n-l"}}
            ),
            "  ▸ bash: ls -l",
        ),
        (
            event("tool.execution_start", {"toolCallId": "c", "toolName": "edit", "arguments": {"a": 1, "b": "é"}}),
            '  ▸ edit: {"a": 1, "b": "é"}',
        ),
        (event("tool.execution_complete", {"toolCallId": "c", "success": True, "result": "x"}), None),
        (
            event("tool.execution_complete", {"toolName": "bash", "success": False, "error": "exit 1"}),
            "  ▸ bash failed: exit 1",
        ),
        (event("session.error", {"kind": "provider", "message": "no key"}), "error: no key (provider)"),
        (event("abort", {"reason": "watchdog"}), "aborted by the watchdog: the model was silent for too long"),
        (event("session.compaction", {}), "  (the agent compacts its conversation)"),
        (
            event("permission.requested", {"id": "q", "tool": "bash", "text": "rm x"}),
            "QUESTION from the agent: `loopsup answer allow` or `loopsup answer deny`\n  bash: rm x",
        ),
        (
            event("permission.completed", {"id": "q", "outcome": "denied", "by": "timeout"}),
            "question answered: denied (by timeout)",
        ),
        (
            event(
                "loop.transition", {"from": "running", "to": "paused", "pauseReason": "blocked", "cause": "settled"}
            ),
            "loop: running → paused (blocked), settled",
        ),
        (event("loop.transition", {"from": None, "to": "queued", "cause": "start"}), "loop: queued, you started it"),
        (event("loop.transition", {"from": "waiting", "to": "running", "cause": "ticked"}), None),
        (
            event("loop.transition", {"from": "running", "to": "waiting", "cause": "iteration_settled"}),
            "loop: running → waiting, the iteration has ended",
        ),
        (
            event("loop.attention", ATTENTION),
            "━━ NEEDS YOU: blocked · iteration 3 of 50 · 41m ━━\n  no credentials\n"
            "  evidence: gh auth status: not logged in",
        ),
        (
            event("loop.attention", ATTENTION | {"status": "completed", "summary": "green", "evidence": {}}),
            "━━ COMPLETED · iteration 3 of 50 · 41m ━━\n  green",
        ),
        (event("loop.hook", {"path": "/h", "exit": 0, "durationMs": 1200}), "hook /h ran (1s)"),
        (
            event("loop.hook", {"path": "/h", "exit": 3, "durationMs": 0, "stderr": "a\nb\n"}),
            "hook /h failed with exit code 3 (0s); the loop is not affected\n  a\n  b",
        ),
        (
            event("loop.hook", {"path": "/h", "timeout": True, "durationMs": 30_000}),
            "hook /h was ended: it took too long (30s); the loop is not affected",
        ),
        (
            event("loop.hook", {"path": "", "error": "no file", "durationMs": 0}),
            "the hook could not be run: no file (0s); the loop is not affected",
        ),
        (
            event("loop.attention", ATTENTION | {"status": "iteration_limit", "summary": "", "evidence": {}}),
            "━━ NEEDS YOU: iterations used up · iteration 3 of 50 · 41m ━━",
        ),
        (event("loop.notice", {"message": "extra decision ignored"}), "note: extra decision ignored"),
        (event("abort", {"reason": "ttsr"}), None),  # T-36: no error; the rule has said so
        (
            event("ttsr_triggered", {"rules": [{"name": "no-\x1b[2J", "path": "a"}, {"name": "b", "path": "b"}]}),
            "── stopped by the rule no-\\x1b[2J, b: it will try again ──",
        ),
        (event("ttsr_injection", {"rules": ["a"], "partial": "discarded"}), None),
        (
            event("ttsr_injection", {"rules": ["a"], "partial": "kept"}),
            "  (what was cut off stays in the conversation)",
        ),
        (
            event("session.start", {"agent": "pi", "agentSessionId": "x", "cwd": "/"}),
            "── conversation with pi begins · 00:00:00 ──",
        ),
        (event("session.shutdown", {"reason": "idle"}), "── session closed: idle · 00:00:00 ──"),
        (event("assistant.reasoning_delta", {"text": "hm"}), None),
        (event("of.the.future", {}), None),
        (event("loop.hook", {}), '(an event that cannot be read: {"v": 1, "seq": 1, "at": "2026-10-10T00:00:00.00…)'),
    ],
)
def test_events_in_words(given: dict[str, Any], shown: str | None) -> None:
    assert render.event_text(given, max_iterations=50, width=80, zone=UTC) == shown


@pytest.mark.parametrize(
    "given",
    [
        event("assistant.message", {"text": HOSTILE + "\n── iteration 4 of 50 ──"}),
        event("user.message", {"origin": "user", "text": HOSTILE}),
        event("user.message", {"origin": HOSTILE, "text": HOSTILE}),
        event("tool.execution_start", {"toolName": HOSTILE, "arguments": {HOSTILE: HOSTILE, "b": HOSTILE}}),
        event("tool.execution_complete", {"toolName": HOSTILE, "success": False, "error": HOSTILE}),
        event("assistant.turn_end", {"stopReason": "error", "error": {"message": HOSTILE}}),
        event("session.error", {"kind": HOSTILE, "message": HOSTILE}),
        event("session.start", {"agent": HOSTILE}),
        event("session.shutdown", {"reason": HOSTILE}),
        event("session.task_complete", {"summary": HOSTILE}),
        event("abort", {"reason": HOSTILE}),
        event("permission.requested", {"tool": HOSTILE, "text": HOSTILE}),
        event("permission.completed", {"outcome": HOSTILE, "by": HOSTILE}),
        event("loop.transition", {"from": HOSTILE, "to": HOSTILE, "cause": HOSTILE}),
        event("loop.attention", ATTENTION | {"summary": HOSTILE, "evidence": {"text": HOSTILE * 2}}),
        event("loop.attention", ATTENTION | {"status": HOSTILE, "iterationCount": HOSTILE}),
        event("loop.hook", {"path": HOSTILE, "signal": HOSTILE, "durationMs": 1, "stderr": HOSTILE}),
        event("loop.hook", {"path": HOSTILE, "exit": HOSTILE, "durationMs": 1, "stderr": HOSTILE}),
        event("loop.notice", {"message": HOSTILE}),
        event("loop.notice", {HOSTILE: HOSTILE}),
        event("assistant.message", {"text": HOSTILE}, agentId="a"),
    ],
)
def test_no_event_reaches_a_terminal_alive(given: dict[str, Any]) -> None:
    shown = render.event_text(given, width=200, zone=UTC)
    assert shown is not None
    assert render.safe(shown, multiline=True) == shown
    assert "── iteration 4" not in [line[:14] for line in shown.split("\n")]


# ---- the screen -----------------------------------------------------------------------------------


def screen_of(*given: dict[str, Any]) -> str:
    out = io.StringIO()
    screen = Screen(out, colour=False, width=80, zone=UTC)
    for one in given:
        screen.event(one)
    screen.finish()
    return out.getvalue()


def delta(part: str) -> dict[str, Any]:
    return event("assistant.message_delta", {"text": part})


def test_streamed_text_is_indented_and_not_printed_twice() -> None:
    shown = screen_of(
        event("assistant.turn_start", {"turnId": "t"}),
        delta("\nHel"),
        delta("lo\n\nwor"),
        delta("ld\n"),
        delta("end"),
        event("assistant.message", {"turnId": "t", "text": "Hello\n\nworld\nend", "toolRequests": []}),
        event("tool.execution_start", {"toolName": "bash", "arguments": {"command": "ls"}}),
    )
    assert shown == "  Hello\n\n  world\n  end\n  ▸ bash: ls\n"


def test_an_answer_seen_from_its_middle_is_printed_whole() -> None:
    whole = event("assistant.message", {"turnId": "t", "text": "Hello world", "toolRequests": []})
    assert screen_of(delta(" world"), whole) == "   world\n  Hello world\n"


def test_an_interrupted_stream_goes_on_after_the_interruption() -> None:
    note = event("loop.notice", {"message": "n"})
    whole = event("assistant.message", {"turnId": "t", "text": "ab", "toolRequests": []})
    assert screen_of(delta("a"), note, delta("b"), whole) == "  a\nnote: n\n  b\n"


STOPPED = event("ttsr_triggered", {"rules": [{"name": "no-foo", "path": "a"}]})
CUT_OFF = (
    STOPPED,
    event("abort", {"reason": "ttsr"}),
    event("assistant.message", {"turnId": "t", "text": "use foo.b", "toolRequests": []}),
)
ENDS = event("assistant.turn_end", {"turnId": "t", "stopReason": "aborted"})
TOLD = "── stopped by the rule no-foo: it will try again ──\n"


@pytest.mark.parametrize(
    "given",
    [
        (delta("use foo.b"), *CUT_OFF, ENDS),
        (*CUT_OFF, ENDS),
        CUT_OFF,  # the stream ends here
        (delta("use foo.b"), STOPPED, event("assistant.turn_start", {"turnId": "u"})),
    ],
    ids=["live", "stored", "to the end", "never said as a whole"],
)
def test_that_a_rule_stopped_an_answer_stands_below_it(given: tuple[dict[str, Any], ...]) -> None:
    assert screen_of(*given) == f"  use foo.b\n{TOLD}"


def test_that_a_rule_stopped_an_answer_stands_above_what_became_of_the_loop() -> None:
    out = io.StringIO()
    screen = Screen(out, colour=False, width=80, zone=UTC)
    screen.event(delta("use foo.b"))
    screen.event(STOPPED)
    screen.status(status(loop(state="paused", pauseReason="user")))
    screen.finish()
    assert out.getvalue() == f"  use foo.b\n{TOLD}paused: you paused it. `loopsup resume` goes on.\n"


def test_a_sub_agents_stream_does_not_mix_with_the_answer() -> None:
    shown = screen_of(delta("a"), delta("x") | {"agentId": "s"}, delta("b"), event("abort", {"reason": "user"}))
    assert shown == "  ab\naborted by you\n"


def test_streamed_text_is_harmless_even_cut_anywhere() -> None:
    shown = screen_of(*(delta(char) for char in HOSTILE))
    assert shown == "  " + render.safe(HOSTILE) + "\n"


def test_the_status_tells_the_next_wake_once_and_gives_the_maximum() -> None:
    out = io.StringIO()
    screen = Screen(out, colour=False, width=80, zone=UTC)
    for _ in range(2):
        screen.status(status(loop(nextDueAt=None)))
    screen.status(status(loop(state="running")))
    screen.event(event("loop.transition", {"from": "running", "to": "waiting", "cause": "settled"}))
    screen.event(event("user.message", {"origin": "loop", "text": ""}, iteration=4))
    screen.status(status(loop(state="paused", pauseReason="user")))
    assert out.getvalue() == (
        f"waiting: no wake fits before its time is used up ({render.local_time(*_deadline(), UTC)})\n"
        "── iteration 4 of 50 · 00:00:00 ──\n"
        "paused: you paused it. `loopsup resume` goes on.\n"
    )


def _deadline() -> tuple[str, int]:
    return loop()["deadlineAt"], render.now_ms()


def test_colour_never_colours_agent_text() -> None:
    out = io.StringIO()
    screen = Screen(out, colour=True, width=80, zone=UTC)
    screen.event(event("user.message", {"origin": "loop", "text": ""}, iteration=1))
    screen.event(event("assistant.message", {"text": "hi"}))
    screen.event(event("loop.attention", ATTENTION | {"status": "failed", "summary": "", "evidence": {}}))
    assert out.getvalue() == (
        "\x1b[1m── iteration 1 · 00:00:00 ──\x1b[0m\n  hi\n\x1b[1;31m━━ FAILED · iteration 3 of 50 · 41m ━━\x1b[0m\n"
    )


def test_ascii_terminals_get_ascii() -> None:
    code = (
        "from loopsup.cli.screen import Screen\n"
        "s = Screen()\n"
        "at = '2026-10-10T00:00:00.000Z'\n"
        "s.event({'at': at, 'type': 'assistant.message', 'data': {'text': 'a\\u00e7\\ud800\\u65e5'}})\n"
        "s.event({'at': at, 'type': 'loop.transition', 'data': {'from': 'a', 'to': 'b', 'cause': 'c'}})\n"
        "s.event({'at': at, 'type': 'assistant.message_delta', 'data': {'text': '\\u65e5'}})\n"
        "s.finish()\n"
    )
    env = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path), "TZ": "UTC", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout == b"  a\\xe7\\ud800\\u65e5\nloop: a -> b, c\n  \\u65e5\n"
