"""Watches a run in flight: signs of life, what the agent is busy with, and when its response is to be cut."""

from __future__ import annotations

from loopsup.clock import Clock
from loopsup.core.model import AbortReason, Moment
from loopsup.core.watch import abort_due, linger_due, silence_due
from loopsup.ports import Doing
from loopsup.shell.questions import Questions
from loopsup.shell.run import Run


class Watch:
    """Knows instants (monotonic ms), does nothing about them."""

    def __init__(self, clock: Clock, questions: Questions, silence_ms: int, terminates: bool) -> None:
        self._clock = clock
        self._questions = questions
        self._silence_ms = silence_ms
        self._terminates = terminates
        self._doing = Doing.NOTHING
        self._last_sign = 0

    def sign(self) -> None:
        """The agent was heard, or spoken to."""
        self._last_sign = self._clock.now().mono

    def doing(self, what: Doing) -> None:
        self._doing = what
        self.sign()

    def rest(self) -> None:
        """Nothing is in flight any more."""
        self._doing = Doing.NOTHING

    def due(self, run: Run) -> int | None:
        """The next instant at which something is to be done about `run`."""
        found = [abort_due(run.abort_asked)]
        if run.aborted is None:
            found += [self._silence(), self._linger(run)]
        return min((at for at in found if at is not None), default=None)

    def ignored(self, run: Run, now: Moment) -> bool:
        """It was asked to end its response and has not."""
        return _reached(abort_due(run.abort_asked), now)

    def cut(self, run: Run, now: Moment) -> AbortReason | None:
        """Why the response is to be ended now."""
        if run.aborted is not None:
            return None
        if _reached(self._linger(run), now):
            return AbortReason.DECISION
        return AbortReason.WATCHDOG if _reached(self._silence(), now) else None

    def quiet(self, now: Moment, ms: int) -> bool:
        """Nothing was heard for this long, no tool runs, and no question waits for a person."""
        asking = self._questions.pending is not None
        return self._doing is not Doing.TOOL and not asking and now.mono - self._last_sign >= ms

    def _silence(self) -> int | None:
        asking = self._questions.pending is not None
        sign = max(self._last_sign, self._questions.last_over)
        return silence_due(self._doing is Doing.MODEL, asking, sign, self._silence_ms)

    def _linger(self, run: Run) -> int | None:
        return linger_due(run.decided, self._terminates)


def _reached(at: int | None, now: Moment) -> bool:
    return at is not None and now.mono >= at
