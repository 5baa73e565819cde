"""What to do with an interrupted response: the budgets and the waits, as functions of (state, event, now).

Rules. Nothing is ever added to what the model sees: a recovery omits what was interrupted and lets the agent
ask once more. Limits are looked at before anything is scheduled, and only what came to be scheduled spends them.
A new request of a person or of the loop has a fresh budget; reminders and recoveries do not. The state lives in
memory only: a new process begins with none. What these limits bound is what is added here: with N retries of the
agent's own and S recoveries, an error that persists costs at most (N + 1) x (S + 1) requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from loopsup.core import guidance
from loopsup.core.classify import Boundary, Interruption, Kind, kind_of
from loopsup.core.limits import MINUTE
from loopsup.core.model import Moment

MAX_RESUMES = 16
STREAM_RETRIES = 12  # of those; empty answers share them
STREAM_DELAY_MS = 5000
SHORT_DELAYS = 3  # attempts with the base delay; later ones wait twice as long
MAX_STREAM_DELAY_MS = 10_000
POLL_MS = 10 * MINUTE
POLLS = 30  # 5 h, the usual window of a subscription
POLLS_LATER = 32  # 5 h 20 min: not to stop at the very instant the provider's window ends
MAX_SAFE = 2**53 - 1  # numbers come over JSON


@dataclass(frozen=True, slots=True)
class Settings:
    """`max_resumes` None: unlimited. `extended`: more of the providers' words about their limits are understood."""

    enabled: bool = True
    max_resumes: int | None = MAX_RESUMES
    stream_retries: int = STREAM_RETRIES
    stream_delay_ms: int = STREAM_DELAY_MS
    extended: bool = False

    @property
    def on(self) -> bool:
        """Whether anything is recovered at all: no resumes, no recovery, not even a poll (C-35)."""
        return self.enabled and self.max_resumes != 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to the agent. `omit`: leave the turn out of the context. `resume`: ask the model once more.

    `end`: the run is being aborted. `kind`, `attempt` and `wait_ms` (spent already) are for the record;
    `notice` is for people.
    """

    omit: bool = False
    resume: bool = False
    end: bool = False
    kind: Kind | None = None
    attempt: int = 0
    wait_ms: int = 0
    notice: str | None = None


NOTHING = Plan()


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait under way, and what comes of it. `of`: the most attempts of this kind, None where there is no limit."""

    kind: Kind
    attempt: int
    of: int | None
    wait_ms: int
    until: Moment
    then: Plan


@dataclass(frozen=True, slots=True)
class Budget:
    """What the present request has spent, and what is waited for.

    `served`: the usage limit of the last turn has been waited out. `trimmed`: turns left out of the context
    where the agent goes on by itself. `gave_up`: a window of polls ended without an answer; `window`: how many
    polls the present one has.
    """

    total: int = 0
    streams: int = 0
    polls: int = 0
    trimmed: int = 0
    served: Kind | None = None
    gave_up: bool = False
    window: int = POLLS
    wait: Wait | None = None


def requested(budget: Budget) -> Budget:
    """A person or the loop asks something new (C-07, X-08)."""
    return Budget(gave_up=budget.gave_up, window=POLLS_LATER if budget.gave_up else POLLS)


def answered(budget: Budget) -> Budget:
    """The provider gave an answer: its window is open again (D-27)."""
    return replace(budget, polls=0, gave_up=False, window=POLLS, served=None)


def settled(budget: Budget) -> Budget:
    """The run is over; counts stay for status (C-17)."""
    return replace(budget, served=None, wait=None)


def cancelled(budget: Budget) -> Budget:
    """The wait ends before its time: nothing is spent and nothing comes of it (C-51)."""
    return replace(budget, served=None, wait=None)


def interrupted(budget: Budget, turn: Interruption, settings: Settings, now: Moment) -> tuple[Budget, Plan | None]:
    """A turn ended. The plan, or None: `Budget.wait` is set and its end brings the plan."""
    kind = kind_of(turn) if settings.on else None
    if turn.boundary is Boundary.TURN:
        budget = replace(budget, served=None)
        return (budget, NOTHING) if kind is None else _at_turn(budget, kind, turn, settings, now)
    if kind is None or turn.natural or not turn.runnable:
        return budget, NOTHING
    return _at_settle(budget, kind, turn, settings, now)


def again(budget: Budget, turn: Interruption, settings: Settings, now: Moment) -> tuple[Budget, Plan]:
    """For an agent that can neither forget a turn nor go on by itself: `resume` means to hand its prompt over again
    after `wait_ms`. Only for what went wrong: an agent that says nothing, or stops at a tool, gets its reminder."""
    kind = kind_of(turn) if settings.on else None
    if kind in (Kind.USAGE_POLL, Kind.STREAM) and (kind is Kind.USAGE_POLL or turn.advised_ms is not None):
        budget, plan = _limited(budget, turn, settings, now)
    elif kind in (Kind.LENGTH, Kind.STREAM):
        budget, plan = _go_on(budget, kind, settings, now if kind is Kind.STREAM else None)
    else:
        return budget, NOTHING
    if plan is not None:
        return budget, plan
    wait = budget.wait
    assert wait is not None
    polls = budget.polls + (wait.kind is Kind.USAGE_POLL)
    spent = replace(_spend(budget, wait.kind), polls=polls, wait=None)
    return spent, Plan(resume=True, kind=wait.kind, attempt=wait.attempt, wait_ms=wait.wait_ms)


def postponed(budget: Budget, until: Moment) -> Budget:
    """The wait lasts until then: somebody else asks the provider first."""
    return budget if budget.wait is None else replace(budget, wait=replace(budget.wait, until=until))


def elapsed(budget: Budget, now: Moment) -> tuple[Budget, Plan | None]:
    """The plan whose wait is over at `now`, if there is one."""
    wait = budget.wait
    if wait is None or not wait.until.reached(now):
        return budget, None
    budget = replace(budget, wait=None)
    if wait.then.resume:
        return _spend(budget, wait.kind), wait.then
    polls = budget.polls + (wait.kind is Kind.USAGE_POLL)
    return replace(budget, served=wait.kind, polls=polls), wait.then


def _at_turn(
    budget: Budget, kind: Kind, turn: Interruption, settings: Settings, now: Moment
) -> tuple[Budget, Plan | None]:
    omit = Plan(omit=True, kind=kind)
    match kind:
        case Kind.LENGTH if turn.stop == "length":
            return _cut_off(budget, turn, settings)
        case Kind.USAGE_POLL:
            return _limited(budget, turn, settings, now)
        case Kind.STREAM if turn.advised_ms is not None:
            return _limited(budget, turn, settings, now)
        case Kind.LENGTH | Kind.STREAM:
            return budget, omit  # the agent's own retries come first (C-11)
        case _:
            return budget, NOTHING


def _cut_off(budget: Budget, turn: Interruption, settings: Settings) -> tuple[Budget, Plan | None]:
    """The output cap: at once, at the turn itself (C-09, C-10)."""
    if turn.natural:
        if settings.max_resumes is not None and budget.trimmed >= settings.max_resumes:
            return budget, NOTHING  # the agent's own words on the cut may help where silence did not
        return replace(budget, trimmed=budget.trimmed + 1), Plan(omit=True, kind=Kind.LENGTH)
    if not turn.runnable:
        return budget, NOTHING
    return _go_on(budget, Kind.LENGTH, settings, now=None)


def _limited(budget: Budget, turn: Interruption, settings: Settings, now: Moment) -> tuple[Budget, Plan | None]:
    """A usage limit: the wait comes before any retry of the agent's own (C-12, C-13, C-52)."""
    kind, attempt, of, wait_ms = _limit(budget, turn, settings)
    omit = Plan(omit=True, kind=kind, attempt=attempt, wait_ms=wait_ms)
    if turn.natural:
        return budget, Plan(omit=True, kind=kind)
    if of is not None and attempt > of:
        gave_up = budget.gave_up or kind is Kind.USAGE_POLL
        return replace(budget, gave_up=gave_up), Plan(omit=True, kind=kind, notice=_spent(kind, of))
    return replace(budget, wait=Wait(kind, attempt, of, wait_ms, now.plus(wait_ms), omit)), None


def _limit(budget: Budget, turn: Interruption, settings: Settings) -> tuple[Kind, int, int | None, int]:
    """Kind, attempt, most attempts and wait of a usage limit."""
    wait_ms = guidance.minutes(turn.error)
    if wait_ms is None:
        wait_ms = turn.advised_ms
    if wait_ms is not None:
        return Kind.USAGE_LIMIT, budget.total + 1, settings.max_resumes, wait_ms
    return Kind.USAGE_POLL, budget.polls + 1, budget.window, POLL_MS


def _at_settle(
    budget: Budget, kind: Kind, turn: Interruption, settings: Settings, now: Moment
) -> tuple[Budget, Plan | None]:
    if budget.served is not None:
        return _go_on(replace(budget, served=None), budget.served, settings, now=None)
    match kind:
        case Kind.USAGE_POLL | Kind.USAGE_LIMIT:
            return budget, NOTHING  # its wait was cancelled, or there is none left
        case Kind.STREAM | Kind.EMPTY:
            return _go_on(budget, kind, settings, now=now)
        case Kind.LENGTH if turn.stop == "length":
            return budget, NOTHING  # decided at the turn
        case Kind.LENGTH | Kind.TOOL_TAIL:
            return _go_on(budget, kind, settings, now=None)


def _go_on(budget: Budget, kind: Kind, settings: Settings, now: Moment | None) -> tuple[Budget, Plan | None]:
    """One more request, if the budgets allow it; `now` where a short wait comes first."""
    omit = kind is not Kind.TOOL_TAIL
    most = settings.max_resumes
    if kind is not Kind.USAGE_POLL and most is not None and budget.total >= most:
        return budget, Plan(omit=omit, kind=kind, notice=_spent(kind, most))
    if now is None:
        spent = _spend(budget, kind)
        attempt = spent.polls if kind is Kind.USAGE_POLL else spent.total
        return spent, Plan(omit, True, kind=kind, attempt=attempt)
    if budget.streams >= settings.stream_retries:
        return budget, Plan(omit=omit, kind=kind, notice=_spent(kind, settings.stream_retries))
    attempt = budget.streams + 1
    delay = stream_delay_ms(settings.stream_delay_ms, attempt)
    then = Plan(omit, True, kind=kind, attempt=attempt, wait_ms=delay)
    if delay == 0:
        return _spend(budget, kind), then
    return replace(budget, wait=Wait(kind, attempt, settings.stream_retries, delay, now.plus(delay), then)), None


def _spend(budget: Budget, kind: Kind) -> Budget:
    if kind is Kind.USAGE_POLL:
        return budget  # it has a bound of its own (C-49)
    return replace(budget, total=budget.total + 1, streams=budget.streams + (kind in (Kind.STREAM, Kind.EMPTY)))


def stream_delay_ms(base: int, attempt: int) -> int:
    """The wait before the `attempt`th recovery of a broken or empty answer (C-30, C-31)."""
    return min(base if attempt <= SHORT_DELAYS else 2 * base, MAX_STREAM_DELAY_MS)


def _spent(kind: Kind, most: int) -> str:
    what = "polls of the usage limit" if kind is Kind.USAGE_POLL else f"recoveries ({kind})"
    return f"the response was interrupted and is not continued: all {most} {what} of this request are used"
