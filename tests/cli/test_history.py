"""The journal's records as rows: what happened to every iteration, and what happened between them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any, Self

from loopsup.cli import history, history_rows, render
from loopsup.cli.history_recoveries import Recovered, recovered
from loopsup.cli.history_rows import IterationRow, LoopRow, NoteRow, Row
from loopsup.core import events as ev
from loopsup.core.limits import DAY
from loopsup.core.model import AbortReason, Auto, Driver, Fixed, Loop, Moment, Policy, Stamp
from loopsup.core.step import advance
from loopsup.store.journal import DamagedLine
from loopsup.wire.journal import Record, UnknownVersion

T0 = 1_791_590_400_000  # 2026-10-10T00:00:00.000Z
MINUTE = 60_000
POLICY = Policy(Fixed(10 * MINUTE))
LOOP = LoopRow(1, "l1", "make it green", POLICY, T0)
FIRST = IterationRow(1, T0, "continue", 2 * MINUTE, 1, 2, summary="s", evidence="e")


class Tale:
    """Tells events to the real machine and keeps the records a supervisor would have written."""

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.records: list[Record] = []

    def at(self, ms: int, event: ev.Event) -> Self:
        now = Moment(T0 + ms, ms)
        for step in advance(self.loop, event, now):
            if step.loop != self.loop:
                self.loop = step.loop
                cause = step.cause or event
                self.records.append(Record(len(self.records), now.wall, now, cause, step.loop))
        return self

    def start(self, ms: int = 0, loop_id: str = "l1", policy: Policy = POLICY) -> Self:
        self.at(ms, ev.Start(loop_id, "make it green", policy, None, idle=True))
        return self.at(ms, ev.HandoverAccepted(self.stamp))

    def wake(self, ms: int) -> Self:
        self.at(ms, ev.Ticked(idle=True))
        return self.at(ms, ev.HandoverAccepted(self.stamp))

    @property
    def stamp(self) -> Stamp:
        stamp = self.loop.stamp() if self.loop is not None else None
        assert stamp is not None
        return stamp

    def decide(self, ms: int, decision: str = "continue", summary: str = "s") -> Self:
        return self.at(ms, ev.DecisionCalled(self.stamp, {"decision": decision, "summary": summary, "evidence": "e"}))

    def settle(self, ms: int, turns: int = 2, **more: Any) -> Self:
        return self.at(ms, ev.IterationSettled(self.stamp, idle=True, turns=turns, **more))

    def first(self) -> Self:
        """One ordinary iteration, from 0 to 2 minutes."""
        return self.start().decide(MINUTE).settle(2 * MINUTE)

    def rows(self, *, alive: bool = True) -> list[Row]:
        return history_rows.reduce(self.records, alive=alive).rows


def test_iterations_up_to_the_end() -> None:
    tale = Tale().first().wake(12 * MINUTE).decide(13 * MINUTE, "complete", "green").settle(13 * MINUTE, turns=1)
    assert tale.rows() == [
        LOOP,
        FIRST,
        IterationRow(2, T0 + 12 * MINUTE, "complete", MINUTE, 1, 1, summary="green", evidence="e"),
        NoteRow(T0 + 13 * MINUTE, "completed", "completed"),
    ]


def test_an_iteration_under_way_and_one_whose_supervisor_is_gone() -> None:
    tale = Tale().start()
    assert tale.rows() == [LOOP, IterationRow(1, T0, prompts=1)]
    lost = "after this its supervisor ended without closing"
    assert tale.rows(alive=False) == [
        LOOP,
        IterationRow(1, T0, "supervisor lost", prompts=1),
        NoteRow(T0, "supervisor_lost", lost),
    ]
    assert Tale().first().rows(alive=False)[2:] == [NoteRow(T0 + 2 * MINUTE, "supervisor_lost", lost)]
    assert Tale().first().at(3 * MINUTE, ev.Pause()).rows(alive=False)[2:] == [
        NoteRow(T0 + 3 * MINUTE, "paused", "paused: by you")
    ]


def test_between_two_ticks_no_supervisor_has_to_live() -> None:
    start = ev.Start("l1", "make it green", POLICY, None, idle=True, driver=Driver.TICK)
    tale = Tale().at(0, start)
    assert tale.rows(alive=False) == [LOOP]
    tale.at(0, ev.Ticked(idle=True, by=Driver.TICK)).at(0, ev.HandoverAccepted(tale.stamp))
    under_way = list(tale.records)
    tale.decide(MINUTE).settle(2 * MINUTE)
    assert tale.rows(alive=False) == [LOOP, FIRST]
    tale.records = under_way
    assert tale.rows(alive=False) == [
        LOOP,
        IterationRow(1, T0, "supervisor lost", prompts=1),
        NoteRow(T0, "supervisor_lost", "after this its supervisor ended without closing"),
    ]


def test_a_missing_decision_its_reminder_and_the_pause() -> None:
    tale = Tale().start().settle(MINUTE)
    tale.at(MINUTE, ev.HandoverAccepted(tale.stamp))
    assert tale.rows() == [LOOP, IterationRow(1, T0, prompts=2, calls=2, reminder=True)]
    tale.settle(2 * MINUTE, turns=1)
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "no decision", 2 * MINUTE, 2, 3, reminder=True),
        NoteRow(T0 + 2 * MINUTE, "paused", "paused: no valid decision, or the agent could not be run"),
    ]


def test_a_reminder_that_helped() -> None:
    tale = Tale().start().settle(MINUTE)
    tale.at(MINUTE, ev.HandoverAccepted(tale.stamp)).decide(MINUTE).settle(2 * MINUTE, turns=1)
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "continue", 2 * MINUTE, 2, 3, reminder=True, summary="s", evidence="e"),
    ]


def test_a_decision_before_its_reminder_went_out() -> None:
    tale = Tale().start()
    tale.at(MINUTE, ev.IterationSettled(tale.stamp, idle=False, turns=1))
    tale.decide(2 * MINUTE)
    assert tale.rows() == [LOOP, IterationRow(1, T0, "continue", 2 * MINUTE, 1, 1, summary="s", evidence="e")]


def test_a_reminder_nobody_took_before_the_stop() -> None:
    tale = Tale().start()
    tale.at(MINUTE, ev.IterationSettled(tale.stamp, idle=False, turns=1)).at(2 * MINUTE, ev.Stop())
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "no decision", 2 * MINUTE, 1, 1, reminder=True),
        NoteRow(T0 + 2 * MINUTE, "stopped", "stopped by you"),
    ]


def test_an_abort_pauses_and_resume_goes_on() -> None:
    tale = Tale().start().settle(MINUTE, aborted=AbortReason.USER)
    tale.at(5 * MINUTE, ev.Resume(idle=True))
    tale.at(5 * MINUTE, ev.HandoverAccepted(tale.stamp)).decide(6 * MINUTE, "fail", "no way").settle(6 * MINUTE)
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "aborted", MINUTE, 1, 2, summary="by user"),
        NoteRow(T0 + MINUTE, "paused", "paused: its iteration was aborted"),
        NoteRow(T0 + 5 * MINUTE, "resumed", "resumed by you"),
        IterationRow(2, T0 + 5 * MINUTE, "fail", MINUTE, 1, 2, summary="no way", evidence="e"),
        NoteRow(T0 + 6 * MINUTE, "failed", "failed"),
    ]


def test_a_busy_agent_is_one_row() -> None:
    tale = Tale().at(0, ev.Start("l1", "make it green", POLICY, None, idle=True))
    for second in (1, 2):
        tale.at(second * 1000, ev.HandoverRefused(tale.stamp, "busy", busy=True))
        if second == 1:
            assert tale.rows() == [LOOP, IterationRow(1, T0, "not delivered", 1000, failed_tries=1, summary="busy")]
        tale.at(second * 1000 + 1000, ev.Ticked(idle=True))
    tale.at(3000, ev.HandoverAccepted(tale.stamp)).decide(4000).settle(4000)
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0 + 3000, "continue", 1000, 1, 2, failed_tries=2, summary="s", evidence="e"),
    ]


def test_a_hand_over_that_never_worked() -> None:
    tale = Tale().at(0, ev.Start("l1", "make it green", POLICY, None, idle=True))
    for second in (1, 3, 8, 17, 34, 67):
        tale.at(second * 1000, ev.HandoverRefused(tale.stamp, "no such model"))
        tale.at(second * 1000 + 16_000, ev.Ticked(idle=True))
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0 + 50_000, "not delivered", 17_000, failed_tries=6, summary="no such model"),
        NoteRow(T0 + 67_000, "paused", "paused: no valid decision, or the agent could not be run (no such model)"),
    ]


def test_the_agent_dies_in_an_iteration() -> None:
    tale = Tale().start().at(MINUTE, ev.AgentLost("exit status 3", turns=1))
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "agent lost", MINUTE, 1, 1, summary="exit status 3"),
        NoteRow(T0 + MINUTE, "paused", "paused: no valid decision, or the agent could not be run (exit status 3)"),
    ]


def test_the_supervisor_dies_in_an_iteration() -> None:
    tale = Tale().start().at(30 * MINUTE, ev.Opened(turns=3))
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, "supervisor lost", 30 * MINUTE, 1, 3, summary="cut short; it stays counted"),
        NoteRow(T0 + 30 * MINUTE, "paused", "paused: its supervisor ended without closing"),
    ]


def test_closing_reloading_updating_and_pausing_between_iterations() -> None:
    tale = Tale().first()
    tale.at(3 * MINUTE, ev.Opened(reload=True))
    tale.at(4 * MINUTE, ev.Update(rhythm=Auto(), max_iterations=9))
    tale.at(5 * MINUTE, ev.Close())
    tale.at(6 * MINUTE, ev.Resume(idle=True))
    tale.at(7 * MINUTE, ev.Pause())
    assert tale.rows() == [
        LOOP,
        FIRST,
        NoteRow(T0 + 4 * MINUTE, "updated", "updated by you: rhythm every 10m → auto, iterations 50 → 9"),
        NoteRow(T0 + 5 * MINUTE, "paused", "paused: the session was closed"),
        NoteRow(T0 + 6 * MINUTE, "resumed", "resumed by you"),
        NoteRow(T0 + 7 * MINUTE, "paused", "paused: by you"),
    ]


def test_an_update_too_small_to_be_shown() -> None:
    tale = Tale().first().at(4 * MINUTE, ev.Update(for_ms=DAY + 1))
    assert tale.rows()[-1] == NoteRow(T0 + 4 * MINUTE, "updated", "updated by you")


def test_a_pause_asked_for_and_withdrawn() -> None:
    tale = Tale().start().at(1000, ev.Pause()).at(2000, ev.Resume(idle=False))
    assert tale.rows() == [
        LOOP,
        IterationRow(1, T0, prompts=1),
        NoteRow(T0 + 1000, "pause_asked", "pause asked for; it waits until the iteration has settled"),
        NoteRow(T0 + 2000, "resumed", "resumed by you"),
    ]


def test_the_deadline_under_an_iteration_and_a_refused_resume() -> None:
    tale = Tale().start(policy=replace(POLICY, for_ms=5 * MINUTE)).at(6 * MINUTE, ev.Ticked(idle=False))
    tale.decide(7 * MINUTE).settle(7 * MINUTE).at(8 * MINUTE, ev.Resume(idle=True))
    assert tale.rows()[1:] == [
        IterationRow(1, T0, "continue", 7 * MINUTE, 1, 2, summary="s", evidence="e"),
        NoteRow(T0 + 6 * MINUTE, "paused", "paused: its time is used up"),
    ]


def test_a_command_that_meets_a_passed_deadline_is_told_once() -> None:
    tale = Tale().start(policy=replace(POLICY, for_ms=5 * MINUTE)).decide(MINUTE).settle(MINUTE)
    tale.at(6 * MINUTE, ev.Update(for_ms=60 * MINUTE))
    assert tale.rows()[2:] == [
        NoteRow(T0 + 6 * MINUTE, "paused", "paused: its time is used up"),
        NoteRow(T0 + 6 * MINUTE, "updated", "updated by you: time 5m → 1h"),
    ]


def test_several_loops_one_after_the_other() -> None:
    tale = Tale().first().at(3 * MINUTE, ev.Stop()).start(4 * MINUTE, "l2")
    assert tale.rows() == [
        LOOP,
        FIRST,
        NoteRow(T0 + 3 * MINUTE, "stopped", "stopped by you"),
        replace(LOOP, number=2, loop_id="l2", at=T0 + 4 * MINUTE),
        IterationRow(1, T0 + 4 * MINUTE, prompts=1),
    ]


def test_moving_to_another_branch_and_back() -> None:
    tale = Tale().first().wake(12 * MINUTE)
    there = replace(tale.records[0].loop or Loop("", "", POLICY, 0, tale.loop.phase), id="l0")  # type: ignore[union-attr]
    back = tale.loop
    tale.at(13 * MINUTE, ev.BranchMoved(there)).at(14 * MINUTE, ev.BranchMoved(back)).at(
        15 * MINUTE, ev.BranchMoved(None)
    )
    kinds = [(type(row).__name__, getattr(row, "number", 0), getattr(row, "what", "")) for row in tale.rows()]
    assert kinds == [
        ("LoopRow", 1, ""),
        ("IterationRow", 1, ""),
        ("IterationRow", 2, ""),
        ("LoopRow", 2, ""),
        ("NoteRow", 0, "branch"),
        ("NoteRow", 0, "paused"),
        ("LoopRow", 1, ""),
        ("NoteRow", 0, "branch"),
        ("NoteRow", 0, "paused"),
        ("NoteRow", 0, "branch"),
        ("NoteRow", 0, "gone"),
    ]
    assert tale.rows()[2] == IterationRow(
        2, T0 + 12 * MINUTE, "branch left", MINUTE, 1, summary="the conversation moved to another branch"
    )


def test_damaged_lines_and_other_versions_are_told() -> None:
    tale = Tale().first()
    past = history_rows.reduce(
        [
            *tale.records[:1],
            *(DamagedLine(offset, "it is not JSON") for offset in (10, 20, 30, 40)),
            *tale.records[1:],
            UnknownVersion(7, b"{}", 9, tale.loop),
        ],
        alive=True,
    )
    assert past.rows == [
        LOOP,
        FIRST,
        NoteRow(T0 + 2 * MINUTE, "unknown_version", "a record of version 7, written elsewhere"),
    ]
    assert list(history.damage(past)) == [
        *(
            f"warning: a damaged line of the journal was skipped (at byte {offset}: it is not JSON)"
            for offset in (10, 20, 30)
        ),
        "warning: 4 damaged lines of the journal were skipped in all",
    ]


ROWS: list[Row] = [
    LOOP,
    FIRST,
    NoteRow(T0 + 5 * MINUTE, "resumed", "resumed by you"),
    IterationRow(2, T0 + 12 * MINUTE, "no decision", 65_000, 2, 7, reminder=True, failed_tries=1),
    replace(LOOP, number=2, objective="x\x1b[2J\ny"),
]


def test_the_page() -> None:
    assert list(history.text_lines(ROWS, T0, 90, UTC)) == [
        "loop 1, 00:00:00: every 10m, 24h, 50 iterations at most",
        "  make it green",
        "   #  started                took  prompts  calls",
        "   1  00:00:00                 2m        1      2  continue: s",
        "      00:05:00             resumed by you",
        "   2  00:12:00               1m5s        2      7  no decision (after a reminder, 1 faile…",
        "",
        "loop 2, 00:00:00: every 10m, 24h, 50 iterations at most",
        "  x\\x1b[2J y",
        "   #  started                took  prompts  calls",
    ]


def test_the_page_on_a_narrow_terminal() -> None:
    lines = "\n".join(history.text_lines(ROWS, T0, 40, UTC)).split("\n")
    assert max(map(render.columns, lines)) <= 40
    assert "    continue: s" in lines


def test_the_page_without_a_loop() -> None:
    assert list(history.text_lines([], T0, 80, UTC)) == ["no loop yet; `loopsup start` gives this session one"]


def test_rows_as_json() -> None:
    assert [history.row_object(row) for row in ROWS[:3]] == [
        {
            "type": "loop",
            "number": 1,
            "loopId": "l1",
            "at": "2026-10-10T00:00:00.000Z",
            "objective": "make it green",
            "everyMs": 600_000,
            "minDelayMs": 60_000,
            "maxDelayMs": 86_400_000,
            "forMs": 86_400_000,
            "maxIterations": 50,
            "misfire": "once",
        },
        {
            "type": "iteration",
            "iteration": 1,
            "at": "2026-10-10T00:00:00.000Z",
            "outcome": "continue",
            "durationMs": 120_000,
            "promptsSent": 1,
            "llmCalls": 2,
            "reminder": False,
            "failedTries": 0,
            "summary": "s",
            "recoveries": [],
        },
        {"type": "note", "at": "2026-10-10T00:05:00.000Z", "what": "resumed", "text": "resumed by you"},
    ]


def test_recoveries_stand_at_the_iteration_of_their_time() -> None:
    first, second, running = Recovered(T0 + 1, "length", 0), Recovered(T0 + 2, "length", 0), Recovered(T0 + 9, "x", 5)
    limit = Recovered(T0 + 3, "usage_limit", 5 * 60 * MINUTE)
    rows: list[Row] = [IterationRow(1, T0, "continue", 5, 1, 4), IterationRow(2, T0 + 8)]
    made = history.with_recoveries(rows, [first, second, limit, Recovered(T0 - 1, "length", 0), running])
    assert made == [replace(rows[0], recoveries=(first, second, limit)), replace(rows[1], recoveries=(running,))]
    (line, _) = history.text_lines(made, T0, 120, UTC)
    assert line.endswith("  continue (output limit ×2, usage limit ×1, planned to wait 5h)")
    assert history.row_object(made[1])["recoveries"] == [{"at": "2026-10-10T00:00:00.009Z", "kind": "x", "waitMs": 5}]


def test_a_malformed_recovery_is_none() -> None:
    at = "2026-10-10T00:00:00.000Z"
    data: list[dict[str, Any]] = [{}, {"kind": 1, "waitMs": 2}, {"kind": "length", "waitMs": "2"}]
    good = {"kind": "length", "attempt": 1, "waitMs": 2}
    found = recovered([{"at": at, "data": each} for each in (*data, good)])
    assert list(found) == [Recovered(T0, "length", 2)]
