"""The arguments after `--` (standard library only: read by the adapter and by the agent's process).

--file PATH               look at the first word of a status file
--run COMMAND [ARGS…]     run a command (no shell) and look at its exit status; takes all that follows
--turns N                 tool turns before the decision (default 1; the last one looks)
--script FILE             for tests: see `loopsup_demo.script`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

USAGE = "give the demo agent something to look at: '-- --file PATH' or '-- --run COMMAND [ARGS…]'"
HELP = (
    "the demo agent takes '--file PATH' (the first word of it decides: running, passed, failed, blocked), or "
    "'--run COMMAND [ARGS…]' (exit status 0: complete, 75: continue, else: fail), and '--turns N' before it"
)
MAX_TURNS = 100  # a pretend turn costs nothing, but each is several lines in the event log


@dataclass(frozen=True, slots=True)
class Options:
    """What the agent was told to look at."""

    file: Path | None = None
    run: tuple[str, ...] = ()
    turns: int = 1
    script: Path | None = None


def parse(args: Sequence[str]) -> Options:
    """ValueError with one sentence for anything that is not understood."""
    given: dict[str, str] = {}
    run: tuple[str, ...] = ()
    rest = list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("--help", "-h"):
            raise ValueError(HELP)
        if name == "--run" and not equals:
            run = tuple(rest)
            if not run:
                raise ValueError(f"--run needs a command; {USAGE}")
            break
        if name not in ("--file", "--turns", "--script"):
            raise ValueError(
                f"the demo agent does not know the argument '{name}' (options of loopsup stand before --); {USAGE}"
            )
        if not equals and not rest:
            raise ValueError(f"{name} needs a value; {USAGE}")
        if name in given:
            raise ValueError(f"{name} is given twice; {USAGE}")
        given[name] = value if equals else rest.pop(0)
    return _checked(given, run)


def _checked(given: dict[str, str], run: tuple[str, ...]) -> Options:
    if len([thing for thing in (given.get("--file"), run, given.get("--script")) if thing]) != 1:
        both = "--file" in given and run
        raise ValueError(f"--file and --run exclude each other; {USAGE}" if both else USAGE)
    return Options(
        file=Path(given["--file"]) if "--file" in given else None,
        run=run,
        turns=_turns(given.get("--turns", "1")),
        script=Path(given["--script"]) if "--script" in given else None,
    )


def _turns(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_TURNS):
        raise ValueError(f"--turns takes a number from 1 to {MAX_TURNS}, not '{text}'")
    return int(text)
