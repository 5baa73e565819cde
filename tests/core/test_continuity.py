"""Budgets and waits of recovery: every limit of part C, on values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core import guidance
from loopsup.core.classify import Boundary, Interruption, Kind
from loopsup.core.continuity import (
    NOTHING,
    POLL_MS,
    Budget,
    Plan,
    Settings,
    answered,
    cancelled,
    elapsed,
    interrupted,
    requested,
    settled,
    stream_delay_ms,
)
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.model import Moment
from tests.support.script import T0

LENGTH = Interruption(Boundary.TURN, "length")
CODEX = "Codex error: The usage limit has been reached"


def broken(error: str, boundary: Boundary = Boundary.SETTLE, **more: object) -> Interruption:
    return Interruption(boundary, "error", error, **more)  # type: ignore[arg-type]


EMPTY = Interruption(Boundary.SETTLE, "stop", substance=False)
TAIL = Interruption(Boundary.SETTLE, "toolUse", tail=("note",))


@dataclass
class Session:
    """A budget and a clock that is moved to each wait's end."""

    settings: Settings = field(default_factory=Settings)
    budget: Budget = field(default_factory=Budget)
    now: Moment = T0
    waits: list[int] = field(default_factory=list)

    def ask(self, turn: Interruption) -> Plan:
        self.budget, plan = interrupted(self.budget, turn, self.settings, self.now)
        while plan is None:
            wait = self.budget.wait
            assert wait is not None
            just_before = Moment(wait.until.wall - 1, wait.until.mono - 1)
            assert elapsed(self.budget, just_before) == (self.budget, None)
            self.waits.append(wait.until.mono - self.now.mono)
            self.now = wait.until
            self.budget, plan = elapsed(self.budget, self.now)
        assert self.budget.wait is None
        return plan

    def fails(self, error: str) -> Plan:
        """A turn that ends in `error`, with no retry of the agent's own; the plan at the settlement."""
        first = self.ask(broken(error, Boundary.TURN))
        assert not first.resume
        return self.ask(broken(error))


def test_the_output_cap_goes_on_at_once_and_sixteen_times() -> None:
    """C-01, C-28, C-34, case 145."""
    session = Session()
    for number in range(1, 17):
        assert session.ask(LENGTH) == Plan(True, True, False, Kind.LENGTH, number)
    last = session.ask(LENGTH)
    assert (last.omit, last.resume) == (True, False)
    assert last.notice == (
        "the response was interrupted and is not continued: all 16 recoveries (length) of this request are used"
    )
    assert session.waits == []
    assert session.ask(replace(LENGTH, boundary=Boundary.SETTLE)) == NOTHING
    session.budget = requested(session.budget)
    assert session.ask(LENGTH).attempt == 1


def test_unlimited_has_no_total() -> None:
    session = Session(Settings(max_resumes=None))
    assert all(session.ask(LENGTH).resume for _ in range(100))


def test_the_output_cap_with_other_work_is_only_left_out() -> None:
    """C-10: nothing is requested and nothing spent; after as many as there are resumes the agent's words stay."""
    session = Session(Settings(max_resumes=2))
    work = replace(LENGTH, natural=True)
    assert [session.ask(work) for _ in range(3)] == [Plan(True, kind=Kind.LENGTH)] * 2 + [NOTHING]
    assert session.budget.total == 0


@pytest.mark.parametrize("turn", [LENGTH, broken("fetch failed"), EMPTY, TAIL])
def test_no_runnable_context_no_continuation(turn: Interruption) -> None:
    """C-26, case 163."""
    assert Session().ask(replace(turn, runnable=False)) == NOTHING


@pytest.mark.parametrize("turn", [broken("fetch failed"), EMPTY, TAIL, broken(CODEX)])
def test_other_work_before_the_settlement_means_none_of_ours(turn: Interruption) -> None:
    assert Session().ask(replace(turn, natural=True)) == NOTHING


@pytest.mark.parametrize("settings", [Settings(enabled=False), Settings(max_resumes=0)])
@pytest.mark.parametrize(
    "turn",
    [LENGTH, EMPTY, TAIL, broken("fetch failed"), broken(CODEX, Boundary.TURN), broken("fetch", Boundary.TURN)],
)
def test_off_is_off(settings: Settings, turn: Interruption) -> None:
    """C-35: also the poll."""
    session = Session(settings)
    assert session.ask(turn) == NOTHING
    assert session.budget == Budget()


@pytest.mark.parametrize("most", [16, None])
def test_a_broken_stream_is_tried_twelve_times(most: int | None) -> None:
    """C-29, C-30, C-33, case 146: the agent's own retries first, then 5, 5, 5 and nine times 10 seconds."""
    session = Session(Settings(max_resumes=most))
    for number in range(1, 13):
        assert session.ask(broken("fetch failed", Boundary.TURN)) == Plan(omit=True, kind=Kind.STREAM)
        plan = session.ask(broken("fetch failed"))
        assert plan == Plan(True, True, False, Kind.STREAM, number, 5000 if number <= 3 else 10_000)
    assert session.waits == [5000] * 3 + [10_000] * 9
    last = session.fails("fetch failed")
    assert not last.resume
    assert last.notice is not None


def test_empty_answers_share_that_limit() -> None:
    session = Session()
    for turn in (EMPTY, broken("terminated")) * 6:
        assert session.ask(turn).resume
    assert not session.ask(EMPTY).resume
    assert session.budget.streams == 12
    assert session.ask(LENGTH).attempt == 13


@pytest.mark.parametrize(
    ("base", "delays"),
    [
        (100_000, [10_000] * 5),
        (0, [0] * 5),
        (3000, [3000, 3000, 3000, 6000, 6000]),
        (7000, [7000] * 3 + [10_000] * 2),
    ],
)
def test_the_base_of_the_delay(base: int, delays: list[int]) -> None:
    """C-31, case 149."""
    assert [stream_delay_ms(base, attempt) for attempt in range(1, 6)] == delays


def test_no_delay_is_no_wait() -> None:
    session = Session(Settings(stream_delay_ms=0))
    assert session.ask(broken("fetch failed")) == Plan(True, True, False, Kind.STREAM, 1, 0)
    assert session.waits == []


def test_a_tool_tail_goes_on_and_keeps_its_results() -> None:
    assert Session().ask(TAIL) == Plan(omit=False, resume=True, kind=Kind.TOOL_TAIL, attempt=1)


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("Try again in 5 min", 5 * MINUTE),
        ("Try again in ~5 min.", 5 * MINUTE + 30 * SECOND),
        ("usage limit. try again in ~0 minutes", 30 * SECOND),
        ("Try again in 0 minutes", 0),
        ("Retry in 12 mins", 12 * MINUTE),
        ("Retry in 1 minute", MINUTE),
        ("RETRY IN 300MIN", 5 * HOUR),
        ("Try again in ~ 37 min", 37 * MINUTE + 30 * SECOND),
    ],
)
def test_the_advertised_time(text: str, wait_ms: int) -> None:
    """C-38..C-42, C-44, D-26, case 150."""
    session = Session()
    plan = session.fails(text)
    assert plan == Plan(True, True, False, Kind.USAGE_LIMIT, 1)
    assert session.waits == [wait_ms]
    assert (session.budget.total, session.budget.streams) == (1, 0)


@pytest.mark.parametrize(
    "count",
    ["-5 min", "99999999999999999999 min", "1" * 30 + " min", "soon", "2 hours", "1.5 min", "٥ min", "NaN min"],
)
def test_a_count_nobody_can_use_is_polled(count: str) -> None:
    """C-48, case 151."""
    session = Session()
    assert session.fails(f"usage limit reached. Try again in {count}").kind is Kind.USAGE_POLL
    assert session.waits == [POLL_MS]


@given(st.text(max_size=200))
def test_guidance_is_total_and_bounded(text: str) -> None:
    wait = guidance.minutes(f"Try again in {text}")
    assert wait is None or 0 <= wait <= guidance.MAX_WAIT_MS


def test_a_five_hour_wait_ends_to_the_second_and_no_clock_set_back_moves_it() -> None:
    """C-72, C-45, case 155: nothing happens before, whatever the wall clock says meanwhile."""
    session = Session()
    text = "Try again in ~300 min"
    session.budget, plan = interrupted(session.budget, broken(text, Boundary.TURN), session.settings, T0)
    assert plan is None
    for second in range(0, 5 * HOUR + 30 * SECOND, SECOND):
        mono = T0.mono + second
        for wall in (T0.wall + second, T0.wall + second - HOUR):
            assert elapsed(session.budget, Moment(wall, mono)) == (session.budget, None)
    back = Moment(T0.wall + 4 * HOUR, T0.mono + 5 * HOUR + 30 * SECOND)
    after, plan = elapsed(session.budget, back)
    assert plan == Plan(True, kind=Kind.USAGE_LIMIT, attempt=1, wait_ms=5 * HOUR + 30 * SECOND)
    _, plan = interrupted(after, broken(text), session.settings, back)
    assert plan == Plan(True, True, False, Kind.USAGE_LIMIT, 1)


def test_a_wait_longer_than_a_32_bit_timer() -> None:
    """C-45: the end is an instant, not a timer."""
    session = Session()
    assert session.fails(f"Try again in {25 * 24 * 60} min").resume
    assert session.waits == [25 * DAY]


def test_timed_waits_spend_the_total_only() -> None:
    """C-43."""
    session = Session()
    assert all(session.fails("Try again in 5 min").resume for _ in range(16))
    assert not session.fails("Try again in 5 min").resume
    assert session.waits == [5 * MINUTE] * 16
    assert session.budget.streams == 0


def test_after_a_wait_the_agents_own_retry_has_the_word() -> None:
    """C-53, case 210: its success spends nothing."""
    session = Session()
    assert session.ask(broken("429: Try again in 5 min", Boundary.TURN)) == Plan(
        omit=True, kind=Kind.USAGE_LIMIT, attempt=1, wait_ms=5 * MINUTE
    )
    session.budget = answered(session.budget)
    assert session.ask(Interruption(Boundary.SETTLE, "stop")) == NOTHING
    assert session.budget.total == 0


def test_the_poll_gives_up_after_thirty_and_later_after_thirty_two() -> None:
    """C-46, C-47, C-49, D-27."""
    session = Session()
    for number in range(1, 31):
        assert session.fails(CODEX) == Plan(True, True, False, Kind.USAGE_POLL, number)
    assert sum(session.waits) == 5 * HOUR
    for _ in range(3):
        assert not session.fails(CODEX).resume
    assert sum(session.waits) == 5 * HOUR
    assert session.budget.total == 0
    for _ in range(2):
        session.budget, session.waits = requested(settled(session.budget)), []
        assert all(session.fails(CODEX).resume for _ in range(32))
        assert not session.fails(CODEX).resume
        assert sum(session.waits) == 5 * HOUR + 20 * MINUTE
    session.budget, session.waits = answered(requested(session.budget)), []
    assert [session.fails(CODEX).resume for _ in range(31)] == [True] * 30 + [False]


def test_an_answer_opens_the_window_again() -> None:
    session = Session()
    assert all(session.fails(CODEX).resume for _ in range(30))
    session.budget = answered(session.budget)
    assert all(session.fails(CODEX).resume for _ in range(30))


@pytest.mark.parametrize("error", ["Try again in 5 min", CODEX])
def test_a_cancelled_wait_schedules_nothing_and_spends_nothing(error: str) -> None:
    """C-51."""
    budget, plan = interrupted(Budget(), broken(error, Boundary.TURN), Settings(), T0)
    assert plan is None
    budget = cancelled(budget)
    assert budget == Budget()
    assert interrupted(budget, broken(error), Settings(), T0) == (Budget(), NOTHING)


def test_a_cancelled_short_wait_spends_nothing() -> None:
    """C-32, case 211."""
    budget, plan = interrupted(Budget(), broken("fetch failed"), Settings(), T0)
    assert plan is None
    assert cancelled(budget) == Budget()
    assert elapsed(cancelled(budget), T0.plus(HOUR)) == (Budget(), None)


def test_queued_input_means_no_wait() -> None:
    """C-14."""
    turn = broken("Try again in 5 min", Boundary.TURN, natural=True)
    assert interrupted(Budget(), turn, Settings(), T0) == (Budget(), Plan(omit=True, kind=Kind.USAGE_LIMIT))


TURNS = st.builds(
    Interruption,
    st.sampled_from(Boundary),
    st.sampled_from(["stop", "toolUse", "length", "error", "aborted", "odd"]),
    st.sampled_from(["", "fetch failed", CODEX, "Try again in 3 min", "401", "max output tokens"]),
    st.booleans(),
    st.sampled_from([(), ("note",), ("loop_control",)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
SETTINGS = st.builds(
    Settings,
    st.booleans(),
    st.none() | st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([0, 5000, 10**9]),
    st.booleans(),
)


@given(st.lists(st.tuples(TURNS, st.booleans()), max_size=60), SETTINGS)
def test_no_sequence_of_turns_spends_more_than_its_limits(
    turns: list[tuple[Interruption, bool]], s: Settings
) -> None:
    session = Session(s)
    resumed = 0
    for turn, leave in turns:
        session.budget, plan = interrupted(session.budget, turn, s, session.now)
        assert (plan is None) == (session.budget.wait is not None)
        if plan is None:
            assert session.budget.wait is not None
            if leave:
                session.budget = cancelled(session.budget)
                continue
            session.now = session.budget.wait.until
            session.budget, plan = elapsed(session.budget, session.now)
            assert plan is not None
        assert not (plan.resume and turn.natural)
        assert not (plan.resume and not turn.runnable)
        assert plan == NOTHING or s.on
        resumed += plan.resume and plan.kind is not Kind.USAGE_POLL
        assert session.budget.total == resumed
        assert s.max_resumes is None or resumed <= s.max_resumes
        assert session.budget.streams <= s.stream_retries
        assert session.budget.polls <= 30


def test_advice_beyond_the_seed_is_a_wait_too() -> None:
    """`guidance = "extended"`: also for what would else be tried again at once; the seed's words go first."""
    session = Session()
    for error in ("429: slow down", CODEX, "Try again in 2 hours"):
        first = session.ask(broken(error, Boundary.TURN, advised_ms=2 * HOUR))
        assert (first.kind, first.resume) == (Kind.USAGE_LIMIT, False)
        assert session.ask(broken(error, advised_ms=2 * HOUR)).kind is Kind.USAGE_LIMIT
    assert session.waits == [2 * HOUR] * 3
    session.ask(broken("Try again in 5 min", Boundary.TURN, advised_ms=HOUR))
    assert session.waits[3] == 5 * MINUTE
    assert session.ask(broken("401", Boundary.TURN, advised_ms=HOUR)) == NOTHING
