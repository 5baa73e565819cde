"""What is told of a response: by the screen alone, where a program has nothing better."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from loopsup.ports import AgentEvents, Doing
from loopsup.terminal.child import Size
from loopsup.wire import events as ev
from loopsup_pty.reading import Reading


class Voice(Protocol):
    """Tells the supervisor what happens in a response, and the agent what the screen alone cannot say."""

    def poll(self) -> None:
        """Look for news."""

    def mark(self) -> None:
        """A message is about to be typed."""

    def took(self) -> bool | None:
        """Whether the program took it; None: this voice cannot say."""
        ...

    def works(self) -> bool:
        """It is at work, whatever the screen looks like."""
        ...

    def doing(self) -> Doing:
        """What it is busy with in a response."""
        ...

    def asks(self) -> str | None:
        """It waits for a person: the question."""
        ...

    def begin(self) -> None:
        """A response begins."""

    def end(self, reason: str, error: Mapping[str, Any] | None) -> None:
        """It is over."""


class ScreenVoice:
    """One turn a response, and the new rows of the screen as what was said."""

    def __init__(self, reading: Reading, events: AgentEvents) -> None:
        self._reading = reading
        self._events = events
        self._before: list[tuple[Size, list[str]]] = []  # the end of the last response, and the message before this
        self._turn = ""

    def poll(self) -> None:
        """There is nothing but the screen."""

    def mark(self) -> None:
        picture = self._reading.stage.picture
        self._before = [*self._before[-1:], (picture.size, picture.lines())]

    def took(self) -> bool | None:
        return None

    def works(self) -> bool:
        return False

    def doing(self) -> Doing:
        return Doing.MODEL

    def asks(self) -> str | None:
        return None

    def begin(self) -> None:
        self._turn = str(uuid.uuid4())
        self._events.emit(ev.TURN_START, {"turnId": self._turn})
        self._events.doing(Doing.MODEL)

    def end(self, reason: str, error: Mapping[str, Any] | None) -> None:
        said = ev.bounded(self._news())
        self.mark()
        if said:
            data = {"turnId": self._turn, "text": said, "toolRequests": []}
            self._events.emit(ev.ASSISTANT_MESSAGE, data)
        end: dict[str, Any] = {"turnId": self._turn, "stopReason": reason}
        self._events.emit(ev.TURN_END, end if error is None else {**end, "error": dict(error)})
        self._events.doing(Doing.NOTHING)

    def _news(self) -> str:
        """A window of another size, of somebody who looks, is no news."""
        wrapped = any(size != self._reading.stage.picture.size for size, _ in self._before)
        before = self._before if wrapped else self._before[-1:]
        return self._reading.news([row for _, rows in before for row in rows], wrapped=wrapped)
