"""Pause reasons in words for people; programs get the names themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "user": "by you",
        "blocked": "the agent is blocked",
        "duration_limit": "its time is used up",
        "iteration_limit": "all its iterations are used up",
        "protocol_error": "no valid decision, or the agent could not be run",
        "session_closed": "the session was closed",
        "fork": "the conversation was forked or moved",
        "interrupted": "its iteration was aborted",
        "supervisor_lost": "its supervisor ended without closing",
        "unknown_version": "written by another version of loopsup",
    }
)
_SHORT: Mapping[str, str] = MappingProxyType(
    {
        "user": "by you",
        "duration_limit": "time used up",
        "iteration_limit": "iterations used up",
        "fork": "forked",
        "interrupted": "aborted",
        "unknown_version": "other version",
    }
)


def words(reason: str) -> str:
    """Why a loop is paused, as part of a sentence. An unknown reason is shown as it is."""
    return _WORDS.get(reason, str(reason).replace("_", " "))


def short(reason: str) -> str:
    """The same for a column or a title."""
    return _SHORT.get(reason, str(reason).replace("_", " "))
