"""Where the objective comes from, and that nothing happens to it on the way."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from loopsup.cli import objective
from loopsup.errors import UsageError
from loopsup.wire.control import MAX_OBJECTIVE

ODD = "  {x} %s $HOME 'q' \"d\"\r\n\ttwo\u2028lines \U0001f600 \x01\n\n"


class Stdin:
    def __init__(self, raw: bytes) -> None:
        self.buffer = io.BytesIO(raw)


@pytest.mark.parametrize(
    ("before", "tail", "has_file", "expected"),
    [
        (["do it"], None, False, (["do it"], ())),
        (["do it"], ["--model", "x"], False, (["do it"], ("--model", "x"))),
        (["do it"], [], False, (["do it"], ())),
        (["do it"], ["a", "--", "b"], False, (["do it"], ("a", "--", "b"))),
        ([], ["-x do it"], False, (["-x do it"], ())),
        ([], ["--json"], False, (["--json"], ())),
        ([], ["-x do it", "--", "--model", "--", "y"], False, (["-x do it"], ("--model", "--", "y"))),
        ([], ["-x do it", "--"], False, (["-x do it"], ())),
        ([], ["--model", "x"], True, ([], ("--model", "x"))),
        ([], ["two", "words"], False, (["two", "words"], ())),
        ([], [], False, ([], ())),
        ([], None, False, ([], ())),
    ],
)
def test_where_the_objective_ends_and_the_agents_arguments_begin(
    before: list[str], tail: list[str] | None, has_file: bool, expected: tuple[list[str], tuple[str, ...]]
) -> None:
    assert objective.split_words(before, tail, has_file=has_file) == expected


def test_it_is_kept_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-05."""
    file = tmp_path / "o"
    file.write_bytes(ODD.encode())
    monkeypatch.setattr(sys, "stdin", Stdin(ODD.encode()))
    assert [objective.read([ODD], None), objective.read([], str(file)), objective.read(["-"], None)] == [ODD] * 3
    monkeypatch.setattr(sys, "stdin", Stdin(ODD.encode()))
    assert objective.read([], "-") == ODD


@pytest.mark.parametrize(
    ("words", "file", "says"),
    [
        ([], None, "the objective is missing"),
        ([""], None, "is blank"),
        (["   "], None, "is blank"),
        (["\n\t\u00a0"], None, "is blank"),
        (["watch", "the", "CI"], None, "put it in quotes: 'watch the CI'"),
        (["it's", "x"], None, "put it in quotes: "),
        ([os.fsdecode(b"caf\xe9")], None, "not valid UTF-8"),
        (["x"], "f", "given twice"),
        ([], "/nonexistent/f", "cannot read the objective from /nonexistent/f: No such file"),
        ([], "/", "Is a directory"),
        ([], "a\0b", "cannot read the objective"),
        (["x" * (MAX_OBJECTIVE + 1)], None, "longer than 1 MiB"),
    ],
)
def test_a_bad_one_is_refused_in_one_sentence(words: list[str], file: str | None, says: str) -> None:
    """L-05, L-16."""
    with pytest.raises(UsageError) as caught:
        objective.read(words, file)
    assert says in caught.value.message
    assert len(caught.value.message) < 300


def test_the_longest_one_is_taken() -> None:
    assert len(objective.read(["x" * MAX_OBJECTIVE], None)) == MAX_OBJECTIVE


@pytest.mark.parametrize("raw", [b"\xff", b"", b"x" * (MAX_OBJECTIVE + 1)])
def test_standard_input_is_held_to_the_same_rules(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(raw))
    with pytest.raises(UsageError, match=r"^standard input is "):
        objective.read(["-"], None)
