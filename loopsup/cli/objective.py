"""Where the objective of a `start` comes from, kept byte for byte.

Rules: it is exactly one argument, or standard input (`-`), or a file; valid UTF-8, not blank, at most
`MAX_OBJECTIVE` bytes. Nothing is stripped, no newline is translated.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from loopsup.errors import UsageError
from loopsup.wire.control import MAX_OBJECTIVE

MAX_SHOWN = 120  # characters of the words repeated in quotes: enough to recognise and to copy


def split_words(before: list[str], tail: list[str] | None, *, has_file: bool) -> tuple[list[str], tuple[str, ...]]:
    """The words of the objective and the agent's arguments; `tail` is what stood after the first `--`.

    `start [OPTIONS] OBJECTIVE [-- ARGS…]`, or `start [OPTIONS] -- OBJECTIVE [-- ARGS…]` where no objective
    stands before the `--`.
    """
    if tail is None:
        return before, ()
    if before or has_file:
        return before, tuple(tail)
    if "--" not in tail:
        return tail, ()
    at = tail.index("--")
    return tail[:at], tuple(tail[at + 1 :])


def read(words: list[str], file: str | None) -> str:
    """The objective. UsageError says what is wrong with it."""
    if file is not None:
        if words:
            raise UsageError("the objective is given twice, as an argument and with --objective-file; give one")
        return _checked(_stdin(), "standard input") if file == "-" else _checked(_read_file(file), f"the file {file}")
    if not words:
        raise UsageError(
            "the objective is missing; give it as one argument in quotes, as - for standard input, "
            "or with --objective-file FILE"
        )
    if len(words) > 1:
        raise UsageError(f"the objective is one argument; put it in quotes: {_in_quotes(words)}")
    if words == ["-"]:
        return _checked(_stdin(), "standard input")
    return _checked(os.fsencode(words[0]), "the objective")


def _checked(raw: bytes, where: str) -> str:
    if len(raw) > MAX_OBJECTIVE:
        raise UsageError(f"{where} is longer than 1 MiB; put the details into a file and name it in the objective")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not valid UTF-8 (byte {error.start}); convert it first") from error
    if not text.strip():
        raise UsageError(f"{where} is blank; say what shall be reached")
    return text


def _stdin() -> bytes:
    if sys.stdin is None:
        raise UsageError("the objective cannot be read: standard input is closed")
    return sys.stdin.buffer.read(MAX_OBJECTIVE + 1)


def _read_file(name: str) -> bytes:
    try:
        with Path(name).open("rb") as source:
            return source.read(MAX_OBJECTIVE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read the objective from {name}: {reason}") from error


def _in_quotes(words: list[str]) -> str:
    shown = shlex.quote(" ".join(words))
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…'"
