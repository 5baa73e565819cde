"""What comes of a rule that was found in the stream: `step(state, event, now)` gives the next state and effects.

How a correction goes. `Matched` reserves the rules (no second match counts), opens a window of 50 ms and asks for
`Interrupt` and `Triggered`, in this order. Rules found until the window closes join it: one abort, one message.
`next_due(state)` is when `Elapsed` must come; it asks for `Inject`, with the context mode in force then. `Injected`
commits: the rules count as injected, `Record` is asked for. Anything that takes the conversation elsewhere before
that (`Cancelled`, another prompt, `NotInjected`) releases the rules: a `once` rule is not lost by it (D-21).

Precedence. A decision that was accepted ends the rules' say in the iteration: nothing is matched, nothing marked
(X-03). While `pending`, an aborted turn is the rules' own: no error is shown, recovery and the protocol's reminder
keep out, nothing is settled, and a decision is refused because its message is being taken back (X-02, X-04, X-07,
X-13, T-36). Six interruptions in one request are enough: what matches then is silenced for the request and shown
(D-23). Pause, stop and the deadline leave a window alone; the supervisor asks for them before it injects (P0, P1).

Turns are counted at their end, also aborted ones, and a rule's age counts from the turn in which it was found: the
aborted turn itself is the first of the gap (T-32, X-22). The machine is total: what does not apply changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from loopsup.core.model import Moment
from loopsup.core.rule_events import (
    Cancelled,
    Configured,
    DecisionAccepted,
    Elapsed,
    Inject,
    Injected,
    Interrupt,
    Matched,
    NotInjected,
    Prompted,
    Record,
    Released,
    Restored,
    RuleEffect,
    RuleEvent,
    Silenced,
    TooSlow,
    Triggered,
    TurnEnded,
    TurnStarted,
)
from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings, reminder

WINDOW_MS = 50  # T-18: long enough for the abort to land, and for a second rule to be found in the same breath
MAX_INTERRUPTIONS = 6  # in one request (D-23): a model that violates a rule each time must not cost money for ever


@dataclass(frozen=True, slots=True)
class Window:
    """Between a match and its injection. `counted`: ended turns when it was opened. `injecting`: handed over."""

    token: int
    generation: int
    turn: str
    due: Moment
    names: tuple[str, ...]
    counted: int
    injecting: bool = False


@dataclass(frozen=True, slots=True)
class RuleState:
    """The rules of a session. `injected`: name -> turns that had ended when it was found (0 after a restart).

    `generation` grows with every prompt, `token` with every window. `silenced`: for this request; `off`: too slow.
    """

    rules: tuple[Rule, ...] = ()
    settings: RuleSettings = field(default_factory=RuleSettings)
    injected: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    generation: int = 0
    token: int = 0
    turn: str | None = None
    interruptions: int = 0
    silenced: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    decided: bool = False
    window: Window | None = None

    @property
    def pending(self) -> bool:
        """From a match until the reminder is in the conversation: the agent's abort is ours."""
        return self.window is not None

    @property
    def watching(self) -> bool:
        """Whether the stream needs to be matched at all now."""
        return bool(self.rules) and self.settings.enabled and not self.decided

    def awaits(self, token: int) -> bool:
        """Whether the `Inject` with this token is still to be done (D-22)."""
        return self.window is not None and self.window.injecting and self.window.token == token


@dataclass(frozen=True, slots=True)
class RuleStep:
    """The state after an event, and what is to be done, in this order."""

    state: RuleState
    effects: tuple[RuleEffect, ...] = ()


def opened(rules: tuple[Rule, ...], settings: RuleSettings, injected: tuple[str, ...] = ()) -> RuleState:
    """The state at the start of a session. Of rules with one name the first stays (T-04); without a trigger, none."""
    return RuleState(_registered(rules), settings, dict.fromkeys(injected, 0))


def next_due(state: RuleState) -> Moment | None:
    """When `Elapsed` must come; None: never."""
    return state.window.due if state.window is not None and not state.window.injecting else None


def step(state: RuleState, event: RuleEvent, now: Moment) -> RuleStep:
    """One event. Total."""
    match event:
        case Matched():
            return _matched(state, event, now)
        case Elapsed():
            return _elapsed(state, now)
        case Injected(token):
            return _injected(state, token)
        case NotInjected(token, why):
            return _released(state, why) if state.awaits(token) else RuleStep(state)
        case Cancelled(why):
            return _released(state, why)
        case Prompted(fresh):
            return _prompted(state, fresh)
        case _:
            return _told(state, event)


def _told(
    state: RuleState, event: DecisionAccepted | TurnStarted | TurnEnded | TooSlow | Restored | Configured
) -> RuleStep:
    match event:
        case TurnStarted(turn):
            return RuleStep(replace(state, turn=turn))
        case TurnEnded():
            return RuleStep(replace(state, turn=None, turns=state.turns + 1))
        case DecisionAccepted():
            released = _released(state, "the iteration's decision was accepted")
            return replace(released, state=replace(released.state, decided=True))
        case TooSlow(names):
            new = _known(state, names, without=state.off)
            return RuleStep(replace(state, off=state.off | set(new)), (Silenced(new, False),) if new else ())
        case Restored(names):
            released = _released(state, "the conversation stands elsewhere now")
            kept = {name: state.injected.get(name, 0) for name in names}
            return replace(released, state=replace(released.state, injected=kept))
        case Configured(settings, rules):
            changed = replace(state, settings=settings)
            return RuleStep(changed if rules is None else replace(changed, rules=_registered(rules)))
        case _:
            assert_never(event)


def _matched(state: RuleState, event: Matched, now: Moment) -> RuleStep:
    """Mark, queue, pending, abort, tell, schedule (T-19); the last is `next_due`."""
    window = state.window
    if not state.watching or event.turn != (state.turn if window is None else window.turn):
        return RuleStep(state)
    if window is not None and window.injecting:
        return RuleStep(state)
    taken = window.names if window is not None else ()
    names = tuple(name for name in _known(state, event.names, without=frozenset(taken)) if _may(state, name))
    if not names:
        return RuleStep(state)
    rules = _rules(state, names)
    if window is not None:
        return RuleStep(replace(state, window=replace(window, names=taken + names)), (Triggered(rules),))
    if state.interruptions >= MAX_INTERRUPTIONS:
        return RuleStep(replace(state, silenced=state.silenced | set(names)), (Silenced(names, True),))
    token = state.token + 1
    opens = Window(token, state.generation, event.turn, now.plus(WINDOW_MS), names, state.turns)
    begun = replace(state, token=token, window=opens, interruptions=state.interruptions + 1)
    return RuleStep(begun, (Interrupt(token), Triggered(rules)))


def _may(state: RuleState, name: str) -> bool:
    """The repeat policy (T-30, T-31), and what was silenced."""
    if name in state.silenced or name in state.off:
        return False
    if name not in state.injected:
        return True
    (rule,) = _rules(state, (name,))
    if (rule.repeat or state.settings.repeat) is RepeatMode.ONCE:
        return False
    gap = state.settings.gap if rule.gap is None else rule.gap
    return state.turns - state.injected[name] >= gap


def _elapsed(state: RuleState, now: Moment) -> RuleStep:
    window = state.window
    if window is None or window.injecting or not window.due.reached(now):
        return RuleStep(state)
    rules = _rules(state, window.names)
    if not rules:  # taken away meanwhile
        return _released(state, "the rules were removed")
    effect = Inject(window.token, window.generation, window.turn, _context(state, rules), rules, reminder(rules))
    return RuleStep(replace(state, window=replace(window, injecting=True)), (effect,))


def _context(state: RuleState, rules: tuple[Rule, ...]) -> ContextMode:
    """As configured at this very moment (T-21). One rule of the batch that wants the text gone has its way."""
    wanted = {rule.context or state.settings.context for rule in rules}
    return ContextMode.DISCARD if ContextMode.DISCARD in wanted else ContextMode.KEEP


def _injected(state: RuleState, token: int) -> RuleStep:
    window = state.window
    if window is None or not state.awaits(token):
        return RuleStep(state)
    injected = {**state.injected, **dict.fromkeys(window.names, window.counted)}
    return RuleStep(replace(state, injected=injected, window=None), (Record(window.names, tuple(sorted(injected))),))


def _released(state: RuleState, why: str) -> RuleStep:
    if state.window is None:
        return RuleStep(state)
    return RuleStep(replace(state, window=None), (Released(state.window.names, why),))


def _prompted(state: RuleState, fresh: bool) -> RuleStep:
    """Another prompt: whatever waited belongs to the one before. Only an actual request has a fresh budget (X-08)."""
    released = _released(state, "another prompt was sent")
    begun = replace(released.state, generation=state.generation + 1, turn=None, decided=False)
    if fresh:
        begun = replace(begun, interruptions=0, silenced=frozenset())
    return replace(released, state=begun)


def _registered(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    first: dict[str, Rule] = {}
    for rule in rules:
        if rule.triggers:
            first.setdefault(rule.name, rule)
    return tuple(first.values())


def _known(state: RuleState, names: tuple[str, ...], *, without: frozenset[str]) -> tuple[str, ...]:
    """The rules among `names`, each once, in the rules' own order."""
    return tuple(rule.name for rule in state.rules if rule.name in names and rule.name not in without)


def _rules(state: RuleState, names: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in state.rules if rule.name in names)
