"""The arguments of control requests, read into values of the core. UsageError for what is not what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loopsup.core import heartbeat
from loopsup.core.misfire import Misfire, from_word
from loopsup.core.model import Auto, Driver, Fixed, Policy, Rhythm
from loopsup.core.overrides import Overrides
from loopsup.errors import UsageError

NUMBERS = ("minDelayMs", "maxDelayMs", "forMs", "maxIterations")


def policy(obj: object) -> Policy:
    if not isinstance(obj, dict) or "rhythm" not in obj:
        raise UsageError("start needs a policy with a rhythm")
    given = {key: integer(obj[key], key) for key in NUMBERS if obj.get(key) is not None}
    defaults = Policy(rhythm(obj["rhythm"]))
    return Policy(
        rhythm=defaults.rhythm,
        min_delay_ms=given.get("minDelayMs", defaults.min_delay_ms),
        max_delay_ms=given.get("maxDelayMs", defaults.max_delay_ms),
        for_ms=given.get("forMs", defaults.for_ms),
        max_iterations=given.get("maxIterations", defaults.max_iterations),
        misfire=misfire(obj.get("misfire")) or defaults.misfire,
    )


def overrides(obj: object, before: Overrides) -> Overrides:
    """`before`, changed by what was said."""
    if obj is None:
        return before
    if not isinstance(obj, dict) or not isinstance(obj.get("enabled", False), bool):
        raise UsageError("continuity is on or off")
    given = {"enabled": obj["enabled"]} if "enabled" in obj else {}
    most = obj.get("maxResumes")
    if most is not None:
        given["max_resumes"] = most if most == "unlimited" else integer(most, "maxResumes")
    if obj.get("streamDelayMs") is not None:
        given["stream_delay_ms"] = integer(obj["streamDelayMs"], "streamDelayMs")
    return replace(before, **given)


def heartbeat_event(args: Mapping[str, Any]) -> heartbeat.Event:
    match args.get("action"):
        case "start":
            every, for_ms = integer(args.get("everyMs"), "everyMs"), integer(args.get("forMs"), "forMs")
            return heartbeat.Begin(every, args.get("ask") is True, for_ms)
        case "pause":
            return heartbeat.Halt()
        case "resume":
            return heartbeat.GoOn()
        case "stop":
            return heartbeat.End()
        case _:
            raise UsageError("a heartbeat can be started, paused, resumed and stopped")


def driver(value: object) -> Driver:
    if value not in (None, *Driver):
        raise UsageError("the driver is resident or tick")
    return Driver.RESIDENT if value is None else Driver(str(value))


def rhythm(value: object) -> Rhythm:
    return Auto() if value == "auto" else Fixed(integer(value, "rhythm"))


def misfire(value: object) -> Misfire | None:
    try:
        return None if value is None else from_word(value)
    except ValueError as error:
        raise UsageError(str(error)) from error


def integer(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number")
    return value


def text(args: Mapping[str, Any], name: str, limit: int) -> str:
    value = args.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text")
    if len(value.encode("utf-8", "surrogatepass")) > limit:
        raise UsageError(f"{name} is longer than {limit} bytes")
    return value
