"""What the screen says: at its prompt, at work, asking something. One look, no memory but how long it has been so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from loopsup.terminal.stage import Stage
from loopsup.wire import events as ev
from loopsup_pty.profiles import MENU, NUMBERED, SETTLE_S, Profile, pattern

MENU_S = 0.5  # a question stands still; words that scroll by do not. And it is over when it is gone for as long: a
# program that draws its screen anew, as for somebody who attaches, takes it away for a moment
_TICKING = re.compile(r"[0-9]+|[^\w\s]")  # clocks, counters, spinners: what moves without anything happening
MENU_ROWS = 15  # a question with its answers
LAST_ROWS = 3  # of the screen, in the words about an end
_NO_WORD = re.compile(r"[\W_]+")
_FRAME = " \t│┃║|>❯›▌"  # what stands around a row of a message


class Seen(StrEnum):
    """What one look found."""

    IDLE = "idle"
    BUSY = "busy"
    MENU = "menu"
    UNSETTLED = "unsettled"
    """Something moved a moment ago; look again."""


class Line(NamedTuple):
    """The row the cursor stands in, and where in it."""

    text: str
    col: int


@dataclass
class Reading:
    """Looks at one stage with a profile's eyes."""

    stage: Stage
    profile: Profile
    said: str = ""
    _menu_since: float | None = None
    _gone_since: float | None = None
    _empty: Line | None = None
    _compiled: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def look(self, now: float) -> Seen:
        lines = self.stage.picture.lines()
        if self.asks(lines):
            self._menu_since = now if self._menu_since is None else self._menu_since
            self._gone_since = None
            return Seen.MENU if now - self._menu_since >= MENU_S else Seen.UNSETTLED
        self._menu_since = None
        self._gone_since = now if self._gone_since is None else self._gone_since
        if self.working(lines):
            return Seen.BUSY
        if not self.stage.picture.current or self.stage.quiet_s < self.settle_s:
            return Seen.UNSETTLED
        return Seen.IDLE

    def asks(self, lines: list[str]) -> bool:
        """A question stands below everything else, and no empty input line beside it."""
        lowest = [line for line in [line for line in lines if line.strip()][-MENU_ROWS:] if not self.ours(line)]
        if not self.shows(self.profile.menu, lowest) and not (self.profile.menu == MENU and numbered(lowest)):
            return False
        return self.profile.empty is None or not self.shows(self.profile.empty, lines)

    def asked(self, now: float) -> bool:
        """At the last look a question stood there, or had until a moment ago."""
        return self._gone_since is None or now - self._gone_since < MENU_S

    def ours(self, line: str) -> bool:
        """A row of the message handed over, as the program shows it."""
        words = " ".join(line.strip(_FRAME).split())
        return bool(words) and words in self.said

    def working(self, lines: list[str]) -> bool:
        """A pattern says so: it shows its sign of work, or does not show its prompt."""
        if self.busy(lines):
            return True
        return self.profile.ready is not None and not self.shows(self.profile.ready, lines)

    def busy(self, lines: list[str]) -> bool:
        """It shows its sign of work."""
        if self.profile.busy is None:
            return False
        return self.shows(self.profile.busy, [line for line in lines if not self.ours(line)])

    @property
    def settle_s(self) -> float:
        """How long nothing may have moved."""
        patterns = self.profile.busy is not None and self.profile.ready is not None
        return min(SETTLE_S, self.profile.quiet_s) if patterns else self.profile.quiet_s

    @property
    def tells_work(self) -> bool:
        """Whether work is seen at once, without waiting for silence."""
        return self.profile.busy is not None or self.profile.ready is not None

    def shows(self, text: str, lines: list[str]) -> bool:
        found = self._compiled.setdefault(text, pattern(text))
        return any(found.search(line) for line in lines)

    def news(self, before: list[str], *, wrapped: bool = False) -> str:
        """What stands there now and did not before, but for the message itself and the input line.

        `wrapped`: the size was another one before, so old words may stand in other rows.
        """
        old, all_old = {line.strip() for line in before}, _bare("".join(before))
        rows = [line for line in self.stage.picture.lines() if line.strip() and line.strip() not in old]
        prompt = self.line().text
        new = [line for line in rows if line != prompt and not self.ours(line)]
        return "\n".join(line for line in new if not wrapped or _bare(line) not in all_old)

    def spoke(self, before: list[str]) -> bool:
        """There are words that did not stand there: neither the message, nor its line, nor a counter."""
        old, prompt = set(still(before)), self.line().text
        rows = [line for line in self.stage.picture.lines() if line != prompt and not self.ours(line)]
        return any(_bare(row) and row not in old for row in still(rows))

    def question(self) -> str:
        """The words on the screen around a question."""
        return "\n".join(line for line in self.stage.picture.lines() if line.strip())

    def drawn(self) -> bool:
        """There is something on the screen."""
        return any(line.strip() for line in self.stage.picture.lines())

    def shown(self, most: int = LAST_ROWS) -> str:
        """The last rows of the screen, for people."""
        rows = [" ".join(line.split()) for line in self.stage.picture.lines() if line.strip()]
        return ev.bounded(" / ".join(rows[-most:]), 500) or "its screen is empty"

    # ---- the input line ---------------------------------------------------------------------------

    def line(self) -> Line:
        row, col = self.stage.picture.cursor
        lines = self.stage.picture.lines()
        return Line(lines[row] if row < len(lines) else "", col)

    def rested(self) -> None:
        """It is at its prompt and nobody has typed since the line was sent: this is what an empty line looks like."""
        if not self.stage.draft.open:
            self._empty = self.line()
            self.stage.draft.rest()

    def empty(self) -> bool:
        """Nothing unsent stands on the input line."""
        if self.profile.empty is not None:
            return self.shows(self.profile.empty, self.stage.picture.lines())
        draft = self.stage.draft
        if draft.touched and self.line() == self._empty:
            draft.rest()  # typed and taken back
        return not draft.touched

    def left(self, pasted: Line) -> bool:
        """What was on the input line after the paste is not there any more, and it is an empty one again."""
        if self.line() == pasted:
            return False
        if self.profile.empty is not None:
            return self.shows(self.profile.empty, self.stage.picture.lines())
        return self._empty is not None and self.line().text == self._empty.text


def numbered(lines: list[str]) -> bool:
    """Short answers stand there with their numbers, first a yes and soon a no."""
    return pattern(NUMBERED).search("\n".join(lines)) is not None


def _bare(text: str) -> str:
    """Letters and digits alone: what a new line break, or a frame, does not change."""
    return _NO_WORD.sub("", text)


def still(lines: list[str]) -> tuple[str, ...]:
    """The picture without what moves by itself: where this changes, something has happened."""
    return tuple(_TICKING.sub("", line).strip() for line in lines)
