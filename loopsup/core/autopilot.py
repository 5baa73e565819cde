"""Autopilot: a user's message whose answer is to go on until the model says that the task is complete.

Two levels (A-22): the run settles, which is mechanical; the model calls `task_complete`, which is its own word.
Settled without that word, it gets a reminder as a new user message, a bounded number of times (D-30). A loop's
iterations have their own protocol and never get this one (X-09).
"""

from __future__ import annotations

DEFAULT_REMINDERS = 5  # as the field's own autopilots: most tasks need one or two, a stuck model any number
MAX_REMINDERS = 1000  # each is a paid call; more is a typing mistake

REMINDER = (
    "You have not yet marked the task as complete with the task_complete tool. If you were planning, stop planning\n"
    "and start implementing. You are not done until the task is fully completed.\n"
    "Do not call task_complete while you have open questions (make the best decision you can), after an error you\n"
    "have not dealt with, or while steps remain. Once everything is done and checked, call task_complete."
)


def remind(left: int, *, completed: bool, error: bool, aborted: bool) -> bool:
    """Whether a settled autopilot run is reminded. `left`: reminders not yet sent for the user's request."""
    return left > 0 and not (completed or error or aborted)
