"""What can happen to the rules of a session, and what comes of it: two closed unions (see `core.rule_state`)."""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core.rules import ContextMode, Rule, RuleSettings

# ---- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt was handed over, or the agent began a run by itself. Not for the reminder of an `Inject`.

    `fresh`: an actual request, of a person or of the loop (X-08, X-28); not a protocol or autopilot reminder.
    """

    fresh: bool


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """`assistant.turn_start`: what is streamed from now on belongs to `turn`."""

    turn: str


@dataclass(frozen=True, slots=True)
class Matched:
    """`Matching` found these rules in what `turn` has streamed."""

    turn: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`assistant.turn_end`, also of an aborted turn."""


@dataclass(frozen=True, slots=True)
class DecisionAccepted:
    """The iteration's decision stands (X-03). Not asked for while `RuleState.pending` (X-02)."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The retry is no longer ours: an abort by a person or the watch, another conversation or branch, the agent's
    end, the session's close. `why`: one clause for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Time passed: look whether the window is over."""


@dataclass(frozen=True, slots=True)
class Injected:
    """The reminder of `Inject` with this token is in the conversation."""

    token: int


@dataclass(frozen=True, slots=True)
class NotInjected:
    """It is not, and will not be."""

    token: int
    why: str


@dataclass(frozen=True, slots=True)
class TooSlow:
    """A trigger of these rules took too long; they are not matched any more in this session."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """These rules have been injected on the branch the conversation stands on (at the opening, after a move)."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings changed; `rules` None: the rules did not."""

    settings: RuleSettings
    rules: tuple[Rule, ...] | None = None


RuleEvent = (
    Prompted
    | TurnStarted
    | Matched
    | TurnEnded
    | DecisionAccepted
    | Cancelled
    | Elapsed
    | Injected
    | NotInjected
    | TooSlow
    | Restored
    | Configured
)

# ---- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the response in flight now (`AbortReason.TTSR`), before anything else is done (T-16, T-44)."""

    token: int


@dataclass(frozen=True, slots=True)
class Triggered:
    """Publish `ttsr_triggered`; nobody waits for who reads it (T-17)."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Inject:
    """The window is over: put `text` into the conversation and let the model try again, without a user's prompt.

    `turn` is the message that was cut off; with `DISCARD` that one is taken out, never merely the last one. Void if
    the conversation is not where it was (D-22): check `RuleState.awaits(token)` right before doing it. Answer with
    `Injected` or `NotInjected`; what fails in the agent is no failure of the session (T-28).
    """

    token: int
    generation: int
    turn: str
    context: ContextMode
    rules: tuple[Rule, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """Write `ttsr_injection` to the journal and the events: `names` now, `injected` all so far on this branch."""

    names: tuple[str, ...]
    injected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """The retry does not come; the rules may act again (D-21). `why`: one clause for people."""

    names: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Silenced:
    """These rules do not act any more: `request`: in this request (D-23), else in this session. To be shown."""

    names: tuple[str, ...]
    request: bool


RuleEffect = Interrupt | Triggered | Inject | Record | Released | Silenced
