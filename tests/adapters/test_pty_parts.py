"""The parts of the pty adapter that need no program: its arguments, what is typed, what is seen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from loopsup.errors import UsageError
from loopsup_pty import profiles
from loopsup_pty.arguments import Command, parse
from loopsup_pty.reading import MENU_S, Reading, Seen, numbered
from loopsup_pty.writing import typeable, unsendable


def test_options_stand_before_the_command() -> None:
    args = ("--ready", "^>", "--quiet=3s", "--resume", "--continue '{id}'", "prog", "--ready", "mine")
    changed = replace(profiles.ANY, ready="^>", quiet_s=3.0, again=("--continue", "{id}"))
    assert parse(profiles.ANY, args) == Command(changed, ("prog", "--ready", "mine"))


def test_arguments_of_a_profile_are_the_programs_own() -> None:
    claude = profiles.KNOWN["claude-tui"]
    assert parse(claude, ("--ready", "x")) == Command(claude, ("--ready", "x"))
    assert parse(claude, ()) == Command(claude, ())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "needs the command line"),
        (("--quiet", "3s"), "needs the command line"),
        (("--quiet",), "--quiet needs a value"),
        (("--quiet", "soon", "x"), "--quiet is a time from 200ms to 10m"),
        (("--quiet", "10ms", "x"), "--quiet is a time from 200ms to 10m"),
        (("--ready", "(", "x"), "--ready is no regular expression"),
        (("--resume", "'", "x"), "--resume cannot be split"),
        (("--resume", " ", "x"), "--resume needs the arguments"),
        (("--fancy", "x"), "'--fancy' is no option of the agent 'pty'"),
    ],
)
def test_what_cannot_be_meant_is_told(args: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parse(profiles.ANY, args)


def test_nothing_that_is_typed_acts_on_the_terminal() -> None:
    text = "a\x1b[201~b\r\nc\td\x07e\x7ff\x9bg\ud800h\x00"
    assert typeable(text) == "a␛[201~b\nc\td␇e␡f\ufffdg\ufffdh␀"
    typeable(text).encode()


@pytest.mark.parametrize("text", ["/quit", "!rm -rf x", "  /quit", "\n!x", "ends in \\", "ends in \\\n"])
def test_what_the_program_would_take_for_something_else_is_not_typed(text: str) -> None:
    assert unsendable(text) is not None


@dataclass
class Screen:
    """What a stage shows, at rest."""

    rows: list[str] = field(default_factory=list)
    quiet_s: float = 60.0

    @property
    def picture(self) -> Any:
        return SimpleNamespace(lines=lambda: self.rows, current=True)


def test_a_question_is_over_when_it_is_gone_for_as_long_as_it_had_to_stand_there() -> None:
    """A program that draws its screen anew (for somebody who attaches) takes it away for a moment."""
    menu, stage = ["Overwrite it? [y/N]"], Screen()
    reading = Reading(stage, replace(profiles.ANY, ready="^>"))  # type: ignore[arg-type]  # stands for a Stage
    stage.rows = menu
    assert (reading.look(0.0), reading.look(MENU_S), reading.asked(MENU_S)) == (Seen.UNSETTLED, Seen.MENU, True)
    stage.rows = []  # minutes later
    assert (reading.look(100.0), reading.asked(100.0)) == (Seen.BUSY, True)
    stage.rows = menu
    assert (reading.look(100.1), reading.asked(100.1)) == (Seen.UNSETTLED, True)
    assert reading.look(100.1 + MENU_S) == Seen.MENU
    stage.rows = ["> "]
    assert (reading.look(200.0), reading.asked(200.0)) == (Seen.IDLE, True)
    assert (reading.look(200.0 + MENU_S), reading.asked(200.0 + MENU_S)) == (Seen.IDLE, False)


def test_an_ordinary_message_is_typed() -> None:
    assert unsendable("[loop iteration]\n/not first\\ nor last") is None


@pytest.mark.parametrize(
    "row",
    [
        "Overwrite it? [y/N]",
        "Continue (yes/no)",
        "❯ 1. Yes, and don't ask again",
        "› 1) Allow",
        "Press enter to continue",
        "(Use arrow keys)",
        "Enter to confirm · Esc to cancel",
        "│ Confirm folder trust │",
    ],
)
def test_questions_are_known_by_their_words(row: str) -> None:
    assert profiles.pattern(profiles.MENU).search(row)


@pytest.mark.parametrize(
    "row", ["❯ ", "1. first do this", "> 1. quoted", "I pressed enter", "the y/n question", "esc to interrupt"]
)
def test_prose_is_no_question(row: str) -> None:
    assert not profiles.pattern(profiles.MENU).search(row)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (["Do you want to proceed?", "  1. Yes", "  2. No"], True),
        (["1) Yes, once", "2) Yes, and don't ask again", "3) No, tell it what to do"], True),
        (["│ 1. Allow │", "│ 2. Reject │"], True),
        (["1. Yes", "and then", "2. No"], False),
        (["1. No", "2. Yes"], False),
        (
            [
                "1. Yes, the first test fails, because the file it wants to read has another name since last week",
                "2. No",
            ],
            False,
        ),
        (["1. Write it", "2. Now test it"], False),
    ],
)
def test_numbered_answers_are_a_question(rows: list[str], found: bool) -> None:
    assert numbered(rows) is found


def test_every_pattern_of_the_table_is_one() -> None:
    for profile in profiles.KNOWN.values():
        for text in (profile.ready, profile.empty, profile.busy, profile.menu):
            assert text is None or profiles.pattern(text)
        assert profile.summary.startswith("untested: ") is not profile.tested
