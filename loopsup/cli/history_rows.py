"""What happened to a session's loops, from the records of its journal: a pure reduction.

An iteration is one row, at the place where it began; what happened between iterations (pauses, resumes,
updates, closures) are notes; every loop begins with a heading. An iteration whose hand-over was rolled back
keeps its row for the next try with the same number, so that a busy agent does not fill the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from loopsup.cli.history_missed import MissedRow
from loopsup.cli.history_notes import notes
from loopsup.cli.history_recoveries import Recovered
from loopsup.core import events as happened
from loopsup.core.model import Driver, Flight, Loop, Paused, Policy, PromptKind, Waiting
from loopsup.store.journal import DamagedLine
from loopsup.wire.journal import Record, UnknownVersion
from loopsup.wire.transition import newly_missed

RUNNING = "running"
NOT_DELIVERED = "not delivered"


@dataclass(frozen=True, slots=True)
class LoopRow:
    """The heading of a loop; `number` counts the session's loops from 1 (a branch may come back to one)."""

    number: int
    loop_id: str
    objective: str
    policy: Policy
    at: int


@dataclass(frozen=True, slots=True)
class IterationRow:
    """One iteration. `took_ms` None: it is still under way. `failed_tries`: hand-overs that were rolled back.

    `outcome` is the decision's verb where there was one, else one of: no decision, aborted, error, agent
    lost, supervisor lost, session closed, branch left, not delivered, running.
    """

    number: int
    at: int
    outcome: str = RUNNING
    took_ms: int | None = None
    prompts: int = 0
    calls: int = 0
    reminder: bool = False
    failed_tries: int = 0
    summary: str = ""
    evidence: str = ""
    recoveries: tuple[Recovered, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteRow:
    """Something between iterations."""

    at: int
    what: str
    text: str


Row = LoopRow | IterationRow | NoteRow | MissedRow


@dataclass(slots=True)
class History:
    """The rows, and the lines of the journal that could not be read."""

    rows: list[Row] = field(default_factory=list)
    damaged: list[DamagedLine] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """The iteration under way: where its row is, and the counters before it."""

    index: int
    iteration: int
    prompts: int
    calls: int


def reduce(records: Iterable[Record | UnknownVersion | DamagedLine], *, alive: bool) -> History:
    """All rows, in the order things began. `alive`: a supervisor lives, so a last iteration can be running."""
    history = History()
    builder = _Builder(history.rows)
    for record in records:
        match record:
            case Record():
                builder.add(record)
            case DamagedLine():
                history.damaged.append(record)
            case UnknownVersion(version):
                builder.note(builder.last_at, "unknown_version", f"a record of version {version}, written elsewhere")
    if not alive:
        builder.lost()
    return history


class _Builder:
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._before: Loop | None = None
        self._open: _Open | None = None
        self._tried: int | None = None  # the row of the hand-over that was rolled back last
        self._loops: dict[str, int] = {}
        self.last_at = 0

    def add(self, record: Record) -> None:
        before, after = self._before, record.loop
        self.last_at = record.now.wall
        same = after is not None and before is not None and after.id == before.id
        self._end(record, before, after if same else None)
        if after is not None and not same:
            self._heading(record, after)
            before = None
        for what, text in notes(record.event, before, after):
            self.note(record.now.wall, what, text)
        if (missed := newly_missed(self._before, after, record.event)) is not None:
            self._rows.append(MissedRow(record.now.wall, missed))
        self._begin(record, before, after)
        self._before = after

    def note(self, at: int, what: str, text: str) -> None:
        self._rows.append(NoteRow(at, what, text))

    def lost(self) -> None:
        """The supervisor is gone: what was under way no longer is (the journal learns it at the next open)."""
        if self._open is not None:
            row = self._rows[self._open.index]
            assert isinstance(row, IterationRow)
            self._rows[self._open.index] = replace(row, outcome="supervisor lost")
        loop = self._before
        if loop is None or loop.terminal or isinstance(loop.phase, Paused):
            return
        if loop.driver is not Driver.TICK or not isinstance(
            loop.phase, Waiting
        ):  # between two ticks nobody has to live
            self.note(self.last_at, "supervisor_lost", "after this its supervisor ended without closing")

    def _heading(self, record: Record, loop: Loop) -> None:
        self._tried = None
        number = self._loops.setdefault(loop.id, len(self._loops) + 1)
        self._rows.append(LoopRow(number, loop.id, loop.objective, loop.policy, record.now.wall))

    def _begin(self, record: Record, before: Loop | None, after: Loop | None) -> None:
        flight = None if after is None else after.flight
        if after is None or flight is None:
            return
        if self._open is not None:
            self._keep_up(after, flight)
            return
        prompts = 0 if before is None else before.prompts_sent
        calls = 0 if before is None else before.llm_calls
        row = IterationRow(flight.iteration, record.now.wall)
        tried = None if self._tried is None else self._rows[self._tried]
        if self._tried is not None and isinstance(tried, IterationRow) and tried.number == flight.iteration:
            self._rows[self._tried] = replace(row, failed_tries=tried.failed_tries)
            index = self._tried
        else:
            self._rows.append(row)
            index = len(self._rows) - 1
        self._open, self._tried = _Open(index, flight.iteration, prompts, calls), None
        self._keep_up(after, flight)

    def _keep_up(self, after: Loop, flight: Flight) -> None:
        """An iteration under way shows what it has cost so far."""
        assert self._open is not None
        row = self._rows[self._open.index]
        assert isinstance(row, IterationRow)
        self._rows[self._open.index] = replace(
            row,
            prompts=after.prompts_sent - self._open.prompts,
            calls=after.llm_calls - self._open.calls,
            reminder=row.reminder or flight.kind is PromptKind.REMINDER,
        )

    def _end(self, record: Record, before: Loop | None, after: Loop | None) -> None:
        opened = self._open
        flight = None if before is None else before.flight
        if opened is None or flight is None:
            return
        now_flight = None if after is None else after.flight
        if now_flight is not None and now_flight.iteration == opened.iteration:
            return
        row = self._rows[opened.index]
        assert isinstance(row, IterationRow)
        decided = isinstance(record.event, happened.DecisionCalled)  # while its reminder had not gone out
        if decided and after is not None:
            flight = replace(flight, decision=after.last_decision)
        outcome, summary = _outcome(record.event, flight)
        self._open = None
        if outcome == NOT_DELIVERED:
            self._tried = opened.index
        prompts = row.prompts if after is None else max(0, after.prompts_sent - opened.prompts)
        self._rows[opened.index] = replace(
            row,
            outcome=outcome,
            took_ms=max(0, record.now.wall - row.at),
            prompts=prompts,
            calls=row.calls if after is None else max(0, after.llm_calls - opened.calls),
            reminder=row.reminder and not (decided and prompts == 1),
            failed_tries=row.failed_tries + (outcome == NOT_DELIVERED),
            summary=summary,
            evidence="" if flight.decision is None else flight.decision.evidence,
        )


def _outcome(event: happened.Event, flight: Flight) -> tuple[str, str]:
    """What became of an iteration that `event` ended, and the words for it."""
    if isinstance(event, happened.HandoverRefused) and flight.kind is PromptKind.ITERATION:
        return NOT_DELIVERED, event.reason
    if flight.decision is not None:
        return flight.decision.verb.value, flight.decision.summary
    match event:
        case happened.IterationSettled(aborted=reason) if reason is not None:
            return "aborted", f"by {reason.value}"
        case happened.IterationSettled(error=error) if error is not None:
            return "error", error
        case happened.IterationSettled():
            return "no decision", ""
        case happened.AgentLost(reason):
            return "agent lost", reason
        case happened.Opened():
            return "supervisor lost", "cut short; it stays counted"
        case happened.Close():
            return "session closed", "cut short; it stays counted"
        case happened.BranchMoved() | happened.ConversationForking():
            return "branch left", "the conversation moved to another branch"
        case _:
            # What is left ends an iteration whose reminder had not been taken by the agent.
            reason = getattr(event, "reason", "")
            return "no decision", f"the reminder could not be handed over: {reason}" if reason else ""
