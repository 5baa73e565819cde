"""The options about interrupted responses, as typed, and their way onto the control socket."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from loopsup.cli.policy_options import Faults, quoted

MAX_RESUMES = "--continuity-max-resumes"
_NUMBER = re.compile(r"[0-9]{1,16}")
MAX_SAFE = 2**53 - 1  # numbers travel as JSON

ContinuityOption = Annotated[
    str | None,
    typer.Option("--continuity", metavar="on|off", help="Whether interrupted responses go on by themselves."),
]
MaxResumesOption = Annotated[
    str | None,
    typer.Option("--continuity-max-resumes", metavar="N|unlimited", help="How often in an iteration; default 16."),
]
StreamDelayOption = Annotated[
    str | None,
    typer.Option(
        "--continuity-stream-delay-ms", metavar="N", help="The first waits after a broken stream; default 5000."
    ),
]


def said(
    faults: Faults, switch: str | None, max_resumes: str | None = None, stream_delay_ms: str | None = None
) -> dict[str, Any]:
    """What was given, as the control protocol's `continuity` has it; an absent option has no key."""
    values = {
        "enabled": _switch(faults, switch),
        "maxResumes": "unlimited" if max_resumes == "unlimited" else _number(faults, MAX_RESUMES, max_resumes),
        "streamDelayMs": _number(faults, "--continuity-stream-delay-ms", stream_delay_ms),
    }
    return {key: value for key, value in values.items() if value is not None}


def _switch(faults: Faults, text: str | None) -> bool | None:
    if text is not None and text not in ("on", "off"):
        faults.add([f"--continuity: {quoted(text)} is not on or off"])
    return None if text is None else text == "on"


def _number(faults: Faults, option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if _NUMBER.fullmatch(text) and int(text) <= MAX_SAFE:
        return int(text)
    more = " or unlimited" if option == MAX_RESUMES else ""
    faults.add([f"{option}: {quoted(text)} is not a whole number of 0 or more{more}"])
    return None
