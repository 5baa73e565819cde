"""What `history` says between the iterations: pauses, resumes, updates, and what else a person should see."""

from __future__ import annotations

from loopsup.cli.missed_words import misfire_words
from loopsup.core import events as happened
from loopsup.core.durations import show as show_duration
from loopsup.core.misfire import word
from loopsup.core.model import Auto, Loop, Paused, Policy
from loopsup.core.reasons import words as reason_words


def notes(event: happened.Event, before: Loop | None, after: Loop | None) -> list[tuple[str, str]]:
    """What a person should see between the iterations, as (what, text)."""
    found: list[tuple[str, str]] = []
    match event:
        case happened.Resume() if _went_on(before, after):
            found.append(("resumed", "resumed by you"))
        case happened.Update() if before is not None and after is not None and before.policy != after.policy:
            found.append(("updated", _policy_change(before.policy, after.policy)))
        case happened.Opened(reload=True) if after is not None and not isinstance(after.phase, Paused):
            found.append(("reloaded", "the supervisor was restarted"))
        case happened.Pause() | happened.Stop() if _intent_new(before, after):
            verb = "pause" if isinstance(event, happened.Pause) else "stop"
            found.append((f"{verb}_asked", f"{verb} asked for; it waits until the iteration has settled"))
        case happened.BranchMoved():
            found.append(("branch", "the conversation moved to another branch"))
        case happened.TtsrInjection(rules) if rules:
            found.append(("rule", f"a response was interrupted for {', '.join(rules)} and tried again"))
        case happened.AgentStartFailed(reason):
            found.append(("agent_start_failed", f"the agent could not be started: {reason}"))
        case _:
            pass
    return found + _new_state(event, before, after)


def _new_state(event: happened.Event, before: Loop | None, after: Loop | None) -> list[tuple[str, str]]:
    if after is None:
        return [("gone", "no loop on this branch")] if before is not None else []
    if isinstance(after.phase, Paused):
        reason = after.phase.reason
        was = before.phase.reason if before is not None and isinstance(before.phase, Paused) else None
        return [] if reason is was else [("paused", f"paused: {reason_words(reason)}{_why(event)}")]
    if after.terminal and (before is None or not before.terminal):
        by = " by you" if after.state.value == "stopped" else ""
        return [(after.state.value, f"{after.state.value}{by}")]
    return []


def _why(event: happened.Event) -> str:
    """The words of a refusal or a loss that led to a pause."""
    reason = getattr(event, "reason", None)
    return f" ({reason})" if isinstance(reason, str) else ""


def _went_on(before: Loop | None, after: Loop | None) -> bool:
    """A resume that did something: the pause ended, or the one that was asked for was withdrawn."""
    if before is None or after is None or isinstance(after.phase, Paused):
        return False
    withdrawn = before.flight is not None and before.flight.intent is not None
    return isinstance(before.phase, Paused) or withdrawn


def _intent_new(before: Loop | None, after: Loop | None) -> bool:
    was = before.flight.intent if before is not None and before.flight is not None else None
    now = after.flight.intent if after is not None and after.flight is not None else None
    return now is not None and now is not was


def _policy_change(before: Policy, after: Policy) -> str:
    def words(policy: Policy) -> dict[str, str]:
        return {
            "rhythm": rhythm_words(policy),
            "min delay": show_duration(policy.min_delay_ms),
            "max delay": show_duration(policy.max_delay_ms),
            "time": show_duration(policy.for_ms),
            "iterations": str(policy.max_iterations),
            "what becomes of a missed wake:": misfire_words(word(policy.misfire)),
        }

    was, now = words(before), words(after)
    changes = [f"{key} {was[key]} → {now[key]}" for key in was if was[key] != now[key]]
    return f"updated by you: {', '.join(changes)}" if changes else "updated by you"  # by less than is shown


def rhythm_words(policy: Policy) -> str:
    """`every 10m` or `auto`."""
    return "auto" if isinstance(policy.rhythm, Auto) else f"every {show_duration(policy.rhythm.every_ms)}"
