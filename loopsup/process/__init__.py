"""Child processes, for adapters and the hook: `Child` runs one on pipes, `Tree` ends one with all it started."""

from loopsup.process.child import DRAIN_GRACE_S, LOOK_S, MAX_LINE, Child, describe_exit
from loopsup.process.tree import KILL_GRACE_S, POLL_S, TERM_GRACE_S, Ladder, Tree

__all__ = [
    "DRAIN_GRACE_S",
    "KILL_GRACE_S",
    "LOOK_S",
    "MAX_LINE",
    "POLL_S",
    "TERM_GRACE_S",
    "Child",
    "Ladder",
    "Tree",
    "describe_exit",
]
