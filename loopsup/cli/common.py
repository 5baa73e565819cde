"""What every verb shares: the options `--session` and `--json`, and the way results leave the process.

Rules: people get text and `--json` gives one JSON object, both on standard output; everything else
(warnings, hints, errors) goes to standard error. A verb is a function that returns its exit code or
raises a `LoopsupError`; only `app.run` turns errors into output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from loopsup.errors import RefusedError, UsageError

TAIL = "tail"  # key in the context's object: what stood after the first `--` of a `start`, or None

SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="NAME",
        help="The session; default: $LOOPSUP_SESSION, else the one of this directory.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print JSON objects on standard output, one a line.")]


class ReaderGoneError(Exception):
    """Whoever read our standard output has left (`| head`)."""


class Verb(TyperCommand):
    """A command that refuses an option given twice: which of the two was meant, nobody can say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        options = [param for param in order if param.param_type_name == "option"]
        for param in options:
            if options.count(param) > 1:
                raise UsageError(f"the option {param.opts[0]} is given more than once; give it once")
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Without the arguments that are only there to be refused well."""
        shown = [param for param in self.get_params(ctx) if not getattr(param, "hidden", False)]
        return [self.options_metavar or "", *(piece for param in shown for piece in param.get_usage_pieces(ctx))]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # typer would end the process with 1
            raise ReaderGoneError from error


def here() -> Path:
    """The current directory. UsageError where it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("the directory you are in no longer exists; go into another one with cd") from error


def out(text: str) -> None:
    """One piece of text for people (or a line of JSON) on standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def note(text: str, *, quotes: bool = False) -> None:
    """A sentence beside the result: a warning, a hint. It may name a directory, whose name may be anything.

    `quotes`: it has words of an agent. Any other one is left whole, for a command in it to be copied.
    """
    from loopsup.cli import render

    line = f"loopsup: {render.safe(text)}"
    sys.stderr.write((render.sentences(line, sys.stderr) if quotes else line) + "\n")
    sys.stderr.flush()


def warn(warnings: Iterable[str]) -> None:
    """Warnings, one line each."""
    for warning in warnings:
        note(f"warning: {warning}")


def out_json(obj: Mapping[str, Any]) -> None:
    """One JSON object on one line; ASCII, so that no terminal and no locale can spoil it."""
    out(json.dumps(obj, ensure_ascii=True, allow_nan=False))


def not_for_agents(what: str) -> None:
    """RefusedError where an agent runs this: it may not decide for the person."""
    from loopsup.wire.control import AGENT_MARK

    if os.environ.get(AGENT_MARK):
        raise RefusedError(f"an agent may not {what}; a person does that in a shell of their own")


def show_status(status: Mapping[str, Any], *, as_json: bool) -> None:
    """The status object, for a program or for a person."""
    from loopsup.cli import render

    if as_json:
        out_json(status)
    else:
        out(render.status_text(dict(status)))


def show_result(message: str, status: Mapping[str, Any], warnings: Iterable[str], *, as_json: bool) -> None:
    """What every changing verb ends with: one sentence for a person, the status object for a program."""
    from loopsup.cli import render

    warn(render.safe(warning) for warning in warnings)
    if as_json:
        out_json(status)
    elif message:
        out(render.sentences(render.safe(message, multiline=True), sys.stdout))
