"""`loopsup report`: all that happened is on the page, and nothing an agent wrote is anything but text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loopsup.cli import report_page
from loopsup.cli.history_missed import MissedRow
from loopsup.cli.history_recoveries import Recovered
from loopsup.cli.history_rows import IterationRow, LoopRow, NoteRow, Row
from loopsup.core.misfire import Done, Missed, Why
from loopsup.core.model import Fixed, Policy, Stopped
from tests.cli.conftest import Run
from tests.cli.support import NOW, Sessions, a_loop, status_of

AT = 1_790_000_000_000  # 2026-09-21 13:33:20 UTC
NASTY = "</td><script>alert(1)</script>&amp;<img src=x onerror=y>\x1b[2J\x00\u202e\ud800 ]]> <!--"


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def rows(text: str = "the run is red") -> Iterator[Row]:
    yield LoopRow(1, "l1", text, Policy(Fixed(600_000)), AT)
    waited = Recovered(AT + 2000, "length", 5000)
    yield IterationRow(1, AT, "continue", 65_000, 2, 3, reminder=True, summary=text, recoveries=(waited,))
    yield MissedRow(AT + 60_000, Missed(AT, 60_000, 2, Why.ASLEEP, Done.WOKEN))
    yield NoteRow(AT + 61_000, "paused", text)
    yield IterationRow(2, AT + 62_000, "complete", 1000, 1, 1, summary="green", evidence=text)
    yield IterationRow(3, AT + 63_000, "no decision")


def the_page(text: str = "the run is red") -> str:
    status = status_of(a_loop(objective=text), "work")
    return report_page.page([(status, list(rows(text)))], AT + 100_000, UTC)


def test_everything_is_on_it() -> None:
    page = Page(the_page())
    for text in (
        "loopsup report of 2026-09-21 14:15:00 (times are UTC)",
        "every 10m, 24h, 50 iterations at most",
        "continue (after a reminder, ",
        "the wake of 14:13:20 was missed by 1m, and 1 more after it",
        "green",
        "no decision",
    ):
        assert text in page.text, text
    assert page.tags.count("tr") == 1 + 5
    assert page.tags.count("details") == 1


def test_what_an_agent_wrote_is_text_and_nothing_else() -> None:
    plain, nasty = Page(the_page()), Page(the_page(NASTY))
    assert (nasty.tags, nasty.attributes) == (plain.tags, plain.attributes)
    assert "script" not in nasty.tags
    raw = the_page(NASTY)
    assert not {"\x1b", "\x00", "\u202e", "\ud800"} & set(raw)
    assert raw.encode("utf-8")
    assert nasty.text.count("</td><script>alert(1)</script>&amp;<img src=x onerror=y>\\x1b[2J\\x00\\u202e") >= 4


def test_it_fetches_nothing() -> None:
    page = Page(the_page())
    assert not {"script", "link", "img", "iframe", "base", "form"} & set(page.tags)
    assert not {"src", "href", "style"} & page.attributes
    assert "default-src 'none'" in the_page()


def test_the_page_of_a_session_and_of_all(run: Run, sessions: Sessions, tmp_path: Path) -> None:
    sessions.make("work", a_loop(Stopped(NOW.wall), objective="watch <it>"))
    sessions.make("other", None, cwd=tmp_path)
    one = run("report")
    assert (one.code, one.err) == (0, "")
    assert "watch <it>" in Page(one.out).text
    (sessions.make("broken", None) / "session.toml").write_text("= =")
    file = tmp_path / "night.html"
    file.write_text("before")
    done = run("report", "--all", "--output", str(file))
    assert (done.code, done.out, file.stat().st_mode & 0o777) == (0, "", 0o600)
    assert "session 'broken' is left out" in " ".join(done.err.split())
    page = Page(file.read_text())
    assert (page.tags.count("h1"), "No loop has run in it yet." in page.text) == (2, True)


def test_a_damaged_line_is_told_and_the_rest_is_there(run: Run, sessions: Sessions) -> None:
    folder = sessions.make("work", a_loop(Stopped(NOW.wall)))
    (folder / "journal.jsonl").write_bytes(b"no record\n" + (folder / "journal.jsonl").read_bytes())
    done = run("report")
    assert (done.code, "a damaged line of the journal was skipped" in " ".join(done.err.split())) == (0, True)
    assert "watch the CI" in done.out


@pytest.mark.parametrize("argv", [("--all", "--session", "work"), ("--output", "/nowhere/x.html"), ("--output", "/")])
def test_what_makes_no_sense_is_refused(run: Run, sessions: Sessions, argv: tuple[str, ...]) -> None:
    sessions.make("work", None)
    assert run("report", *argv).code == 2


def test_without_sessions(run: Run) -> None:
    assert run("report").code == 3
    assert "There is no session" in run("report", "--all").out


def test_a_name_that_no_file_can_have_is_told(run: Run, sessions: Sessions) -> None:
    sessions.make("work", None)
    done = run("report", "--output", str(sessions.cwd / ("a" * 300)))
    assert (done.code, "File name too long" in " ".join(done.err.split())) == (1, True)
