"""`/loop …` as a person types it inside an agent: one line, the same commands, no shell in between.

The objective of a `start` is the rest of the line after its options, byte for byte: no quotes are taken away, no
space inside it is touched. `--` ends the options, for an objective that begins with a dash. Nothing here decides;
the line becomes the request any other client would send.
"""

from __future__ import annotations

import re
from typing import Any

from loopsup.errors import UsageError
from loopsup.wire.control import Request
from loopsup.wire.typed import Faults, changes, quoted, with_defaults

BARE = ("status", "pause", "resume", "stop")
POLICY = ("--every", "--for", "--max-iterations", "--min-delay", "--max-delay")
USAGE = (
    "/loop start --every <10m|auto> [--after 5m] [--for 24h] [--max-iterations 50] [--min-delay 1m] "
    "[--max-delay 24h] <objective>, or /loop status, pause, resume, stop, update"
)
_WORD = re.compile(r"\s*(\S+)")


def parse(line: str) -> Request:
    """The request; UsageError names everything that is wrong with it."""
    found = _WORD.match(line)
    if found is None:
        raise UsageError(f"say what the loop shall do: {USAGE}")
    verb, rest = found.group(1), line[found.end() :]
    if verb in BARE:
        if rest.strip():
            raise UsageError(f"/loop {verb} takes nothing after it; there is one loop in a session")
        return Request(verb)
    if verb == "start":
        return _start(rest)
    if verb == "update":
        return _update(rest)
    raise UsageError(f"there is no /loop {quoted(verb)}; the commands are {USAGE}")


def _start(rest: str) -> Request:
    given, objective = _options(rest, (*POLICY, "--after"), "start")
    faults = Faults()
    if "--every" not in given:
        faults.add(["--every is missing; give it a duration like 10m, or auto"])
    policy = _policy(faults, given)
    after = given.get("--after")
    if after == "auto":
        faults.add(["--after: 'auto' is not a duration; write how long to wait, like 5m"])
    after_ms = None if after == "auto" else faults.duration("--after", after)
    if not objective.strip():
        faults.add(["the objective is missing; it is the rest of the line after the options"])
    faults.refuse()
    args: dict[str, Any] = {"objective": objective, "policy": with_defaults(policy)}
    return Request("start", args if after_ms is None else {**args, "afterMs": after_ms})


def _update(rest: str) -> Request:
    given, words = _options(rest, POLICY, "update")
    faults = Faults()
    policy = _policy(faults, given)
    if words.strip():
        faults.add(["the objective of a loop never changes; /loop update takes options alone"])
    elif not given:
        faults.add([f"/loop update needs at least one of {', '.join(POLICY)}"])
    faults.refuse()
    return Request("update", {"policy": policy})


def _policy(faults: Faults, given: dict[str, str]) -> dict[str, Any]:
    return changes(
        faults,
        every=given.get("--every"),
        min_delay=given.get("--min-delay"),
        max_delay=given.get("--max-delay"),
        for_=given.get("--for"),
        max_iterations=given.get("--max-iterations"),
    )


def _options(text: str, known: tuple[str, ...], verb: str) -> tuple[dict[str, str], str]:
    """The options at the beginning, and what is left after them (without the space before it)."""
    given: dict[str, str] = {}
    while (found := _WORD.match(text)) is not None and found.group(1).startswith("-"):
        name, equals, value = found.group(1).partition("=")
        text = text[found.end() :]
        if name == "--" and not equals:
            break
        if name not in known:
            raise UsageError(f"/loop {verb} has no option {quoted(name)}; it has {', '.join(known)}")
        if name in given:
            raise UsageError(f"the option {name} is given more than once; give it once")
        if not equals:
            following = _WORD.match(text)
            if following is None:
                raise UsageError(f"the option {name} needs a value")
            value, text = following.group(1), text[following.end() :]
        given[name] = value
    return given, text.lstrip()
