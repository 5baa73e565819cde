"""What stands after `--`: options of ours for reading the program's screen, then its command line.

Options end at the first word that does not begin with `--`, so a command needs no separator of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from loopsup.errors import UsageError
from loopsup_pty.profiles import Profile, pattern

MIN_QUIET_S, MAX_QUIET_S = 0.2, 600.0
_DURATION = re.compile(r"(?a:([0-9]+(?:\.[0-9]+)?)(ms|s|m)?)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Command:
    """The program as it is to be started: its profile with the options applied, and its own words."""

    profile: Profile
    words: tuple[str, ...]


def parse(profile: Profile, args: tuple[str, ...]) -> Command:
    """UsageError for an option that is none of ours, or a command line that is missing."""
    words = list(args)
    if not profile.command:
        while words and words[0].startswith("--"):
            name, _, value = words.pop(0).partition("=")
            if name not in _OPTIONS:
                known = ", ".join(sorted(_OPTIONS))
                raise UsageError(
                    f"'{name}' is no option of the agent 'pty' (there are {known}); the command comes first"
                )
            if not value:
                if not words:
                    raise UsageError(f"{name} needs a value")
                value = words.pop(0)
            profile = _OPTIONS[name](profile, name, value)
        if not words or not words[0].strip():
            raise UsageError(
                "the agent 'pty' needs the command line of a program with a terminal interface: "
                "loopsup start … OBJECTIVE -- COMMAND ARGS…"
            )
    return Command(profile, tuple(words))


def _expression(field: str) -> Callable[[Profile, str, str], Profile]:
    def change(profile: Profile, name: str, value: str) -> Profile:
        try:
            pattern(value)
        except re.error as error:
            raise UsageError(f"{name} is no regular expression: {error}") from error
        values: dict[str, Any] = {field: value}
        return replace(profile, **values)

    return change


def _quiet(profile: Profile, name: str, value: str) -> Profile:
    found = _DURATION.match(value)
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not MIN_QUIET_S <= seconds <= MAX_QUIET_S:
        raise UsageError(f"{name} is a time from 200ms to 10m, such as 3s; '{value}' is not")
    return replace(profile, quiet_s=seconds)


def _again(profile: Profile, name: str, value: str) -> Profile:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise UsageError(f"{name} cannot be split into arguments: {error}") from error
    if not words:
        raise UsageError(f"{name} needs the arguments with which the program goes on, such as '--continue'")
    return replace(profile, again=words)


def _new(profile: Profile, name: str, value: str) -> Profile:
    return replace(_again(profile, name, value), again=profile.again, new=tuple(shlex.split(value)))


_OPTIONS: dict[str, Callable[[Profile, str, str], Profile]] = {
    "--ready": _expression("ready"),
    "--empty": _expression("empty"),
    "--busy": _expression("busy"),
    "--menu": _expression("menu"),
    "--quiet": _quiet,
    "--new": _new,
    "--resume": _again,
}
