"""The error tree and the one table of exit codes.

Every error a person can meet is one sentence that says what is wrong and what to do, with the exit
code scripts depend on. `raise` towards the layer that can decide; the CLI turns them into output once.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar


class LoopsupError(Exception):
    """Base of all errors meant for people. `exit` is the process exit code, `kind` the JSON name."""

    exit: ClassVar[int] = 1
    kind: ClassVar[str] = "internal"

    @property
    def message(self) -> str:
        return str(self)


class UsageError(LoopsupError):
    """The command line (or a value in it) is wrong; nothing was changed."""

    exit = 2
    kind = "usage"


class ConfigError(UsageError):
    """The configuration file is wrong; names the file and the key."""

    kind = "config"


class NotFoundError(LoopsupError):
    """No such session or loop."""

    exit = 3
    kind = "not_found"


class RefusedError(LoopsupError):
    """The command is not allowed in the present state; nothing was changed."""

    exit = 4
    kind = "refused"


class ClosingError(RefusedError):
    """The session is just being closed; once it is, the command can be carried out another way."""

    kind = "closing"


class SettlingError(RefusedError):
    """Nobody may come in while a turn that was ended because nobody was there has not settled."""

    kind = "settling"


class SupervisorGoneError(LoopsupError):
    """The supervisor is gone or does not answer."""

    exit = 5
    kind = "supervisor_gone"


class AgentUnableError(LoopsupError):
    """The agent CLI is missing, cannot start, or cannot do what was asked."""

    exit = 6
    kind = "agent_unable"


class StorageError(LoopsupError):
    """The state could not be read or written (disk full, permission, foreign owner)."""

    kind = "storage"


class WaitTimeoutError(LoopsupError):
    """`wait --timeout` ran out; the loop goes on."""

    exit = 124
    kind = "timeout"


BY_KIND = MappingProxyType(
    {
        cls.kind: cls
        for cls in (
            LoopsupError,
            UsageError,
            ConfigError,
            NotFoundError,
            RefusedError,
            ClosingError,
            SettlingError,
            SupervisorGoneError,
            AgentUnableError,
            StorageError,
            WaitTimeoutError,
        )
    }
)

EXIT_DONE = 0
EXIT_INTERRUPTED = 130  # Ctrl-C of a follower, as shells report SIGINT

# What `wait` (and a `start` that follows) exits with. Keys are a terminal state or a pause reason.
WAIT_EXIT = MappingProxyType(
    {
        "completed": 0,
        "failed": 10,
        "blocked": 11,
        "duration_limit": 12,
        "iteration_limit": 13,
        "protocol_error": 14,
        "stopped": 15,
        "user": 16,
        "fork": 16,
        "interrupted": 16,
        "unknown_version": 16,
        "session_closed": 17,
        "supervisor_lost": 17,
    }
)


def from_kind(kind: str, message: str) -> LoopsupError:
    """The error a `kind` from the control socket stands for (an unknown kind is internal)."""
    return BY_KIND.get(kind, LoopsupError)(message)
