"""The stream rules of a session: put in force at its start, recorded where they act, true to the branch.

An agent that cannot end a response half-way has no rules in force, and one that can do less than a rule asks for is
told about, once a start: nothing is ever pretended (X-27).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from loopsup.core.events import TtsrInjection
from loopsup.core.model import Loop, Paused, PauseReason
from loopsup.core.rule_events import Record
from loopsup.core.rules import ContextMode, Matching, Rule, RuleSettings
from loopsup.errors import StorageError
from loopsup.in_force import rules_in_force, settings_now
from loopsup.ports import Capabilities
from loopsup.shell.continuity import leaving
from loopsup.shell.run import Run
from loopsup.store.journal import injected_rules
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor


class RuleBook:
    """Between the supervisor and `StreamRules`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._rules = supervisor.host.rules
        self._rules.record = self._record
        self._rules.in_the_way = self._in_the_way

    def open(self, cwd: Path, *, guest: bool) -> None:
        """Read the rules of the session's directory and put them in force. `guest`: a person sits in front of it."""
        found = rules_in_force(cwd)
        for notice in found.notices:
            self._supervisor.log(notice)
            self._tell(notice)
        if guest and found.rules:
            self._tell("stream rules are not in force here: you are in front of the agent yourself")
        elif not guest:
            self.load(found.rules, found.settings, found.matcher, settings_now)

    def load(
        self,
        rules: tuple[Rule, ...],
        settings: RuleSettings,
        matching: Matching,
        now: Callable[[], RuleSettings | None] = lambda: None,
    ) -> None:
        """Put these in force, as far as the agent can. `now`: the settings as configured at a later time."""
        slot = self._supervisor.host.slot
        if not rules or not settings.enabled:
            return
        if (short := shortcomings(slot.capabilities, rules, settings)) is not None:
            self._tell(f"stream rules with {slot.agent}: {short}")
        if not slot.capabilities.abort:
            return
        self._rules.load(rules, settings, matching, self._injected(None))
        self._rules.settings = now

    def moved(self, seq: int | None) -> None:
        """The conversation stands on another branch, marked with the journal's record `seq` (None: with none)."""
        if not self._rules.active:
            return
        names = () if seq is None else self._injected(seq)
        self._rules.restored(names)
        self._write(TtsrInjection((), names))  # so that the newest record is always the present branch's

    def _injected(self, seq: int | None) -> tuple[str, ...]:
        try:
            return injected_rules(self._supervisor.folder, seq)
        except StorageError as error:
            self._supervisor.log(error.message)
            return ()

    def _record(self, record: Record, partial: str) -> None:
        run = self._supervisor.host.run
        data = {"rules": list(record.names), "partial": partial}
        self._supervisor.publish(words.TTSR_INJECTION, data, iteration=None if run is None else run.iteration)
        self._write(TtsrInjection(record.names, record.injected))

    def _write(self, event: TtsrInjection) -> None:
        if not _foreign(self._supervisor.loop):
            self._supervisor.fact(event)

    def _in_the_way(self, run: Run) -> str | None:
        """P0 and P1 go before a retry."""
        if self._supervisor.closing:
            return "the session is being closed"
        if run.stamp is not None and leaving(self._supervisor.loop) is not None:
            return "the loop was paused or stopped, or its time is over"
        return None

    def _tell(self, message: str) -> None:
        self._supervisor.publish(words.LOOP_NOTICE, {"message": message})


def shortcomings(can: Capabilities, rules: tuple[Rule, ...], settings: RuleSettings) -> str | None:
    """What an agent cannot do of what the rules ask for, in one sentence; None: it can do it all."""
    if not can.abort:
        return "not in force, because it cannot end a response half-way"
    wanted = {rule.context or settings.context for rule in rules}
    found = [
        (can.terminal and not can.hold_tools, "a message is looked at only once it is whole"),
        (not can.hold_tools, "a tool may have begun before its arguments are checked"),
        (ContextMode.DISCARD in wanted and not can.rewind, "what was cut off goes or stays as the agent does it"),
        (ContextMode.KEEP in wanted and not can.keep_partial, "what was cut off cannot be kept"),
        (not can.continue_without_message, "the reminder goes in as a user's message"),
    ]
    told = [words for short, words in found if short]
    return "; ".join(told) if told else None


def _foreign(loop: Loop | None) -> bool:
    """The newest record is of a version we cannot write: it stays the newest."""
    return loop is not None and isinstance(loop.phase, Paused) and loop.phase.reason is PauseReason.UNKNOWN_VERSION
