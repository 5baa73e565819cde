"""Questions of the agent: answered by the permission policy, by a person, or (denied) by time.

Nobody is there at night: a question that waits longer than the configured time is denied with words that let
the model `block` instead of trying again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loopsup.clock import Clock
from loopsup.core.durations import show
from loopsup.ports import Permissions, Question
from loopsup.wire.events import PERMISSION_COMPLETED, PERMISSION_REQUESTED, bounded
from loopsup.wire.status import PendingQuestion

MAX_TEXT = 4000  # characters of a question shown; what it is about is in the first lines


class Questions:
    """The questions pending. `decided(id, allow, by, text)` is called for those the policy answers at once."""

    def __init__(
        self,
        policy: Permissions,
        clock: Clock,
        publish: Callable[[str, Mapping[str, Any]], None],
        decided: Callable[[str, bool, str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._publish = publish
        self._decided = decided
        self._changed = changed
        self._pending: dict[str, tuple[PendingQuestion, int]] = {}
        self.last_over = 0  # monotonic ms: an agent that waited for a person is silent only from here on

    @property
    def pending(self) -> PendingQuestion | None:
        """The oldest question, as status shows it."""
        return next((question for question, _ in self._pending.values()), None)

    @property
    def unanswered_text(self) -> str:
        waited = show(self._policy.timeout_ms)
        return (
            f"No person answered within {waited}; treat this as denied. If you cannot go on without it, "
            "end the iteration with the decision block and say what a person has to allow."
        )

    def ask(self, question: Question) -> None:
        now = self._clock.now()
        text = bounded(question.text, MAX_TEXT)
        expires = self._policy.timeout_ms
        pending = PendingQuestion(question.id, question.kind, question.tool, text, now.wall, now.wall + expires)
        self._pending[question.id] = (pending, now.mono + expires)
        self._publish(PERMISSION_REQUESTED, {"id": question.id, "tool": question.tool, "text": text})
        verdict = _by_policy(self._policy, question)
        if verdict is not None:
            self._decided(question.id, verdict, "policy", "" if verdict else "The permission policy denies this.")
        else:
            self._changed()

    def take(self, question_id: str | None) -> PendingQuestion | None:
        """Remove and return a question (None: the oldest)."""
        if question_id is None:
            question_id = next(iter(self._pending), None)
        return None if question_id is None else self._pop(question_id)

    def over(self, question_id: str, outcome: str) -> None:
        """It went away by itself."""
        if self._pop(question_id) is not None:
            self._publish(PERMISSION_COMPLETED, {"id": question_id, "outcome": outcome, "by": "agent"})
            self._changed()

    def _pop(self, question_id: str) -> PendingQuestion | None:
        found = self._pending.pop(question_id, None)
        if found is None:
            return None
        self.last_over = self._clock.now().mono
        return found[0]

    def clear(self) -> None:
        for question_id in list(self._pending):
            self.over(question_id, "withdrawn")

    def due(self) -> int | None:
        return min((expires for _, expires in self._pending.values()), default=None)

    def expired(self, mono: int) -> list[PendingQuestion]:
        return [question for question, expires in self._pending.values() if expires <= mono]


def _by_policy(policy: Permissions, question: Question) -> bool | None:
    """True or False: answered by the policy; None: a person is asked. Dialogs are never the policy's."""
    if question.kind != "permission":
        return None
    if question.tool in policy.deny:
        return False
    if policy.allow_all or question.tool in policy.allow:
        return True
    return {"allow": True, "deny": False}.get(policy.mode)
