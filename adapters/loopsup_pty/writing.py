"""Handing a message over at the keyboard: as one bracketed paste, then Enter, and then looking whether it was taken.

Rules. The text cannot end its own paste: control characters become visible signs. Enter comes only after the program
has shown the paste, as some take a text and an Enter that are read together for one paste. Taken is what has left
the input line, or what made the program work, ask or say something; anything else is unknown, and never tried again.
Where the program ended before Enter, nothing was handed over.
Enter is pressed once more where the line still stands exactly as it was pasted: then the first one was lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from loopsup.ports import Accepted, Handover, Refused, Unknown
from loopsup.terminal.stage import Stage
from loopsup_pty.reading import Line, Reading

PASTE, PASTE_END, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"
WRITE_S = 10.0  # a program at its prompt reads at once
ECHO_S = 10.0  # to draw what was pasted; a slow machine gets the rest
ECHO_QUIET_S = 0.3  # the drawing is over
ECHO_MOST_S = 3.0  # a prompt that never stands still
TAKEN_S = 15.0  # from Enter to a sign of it
AGAIN_S = 4.0  # after this an Enter that changed nothing is pressed once more
WORKING_S = 1.0  # output over this time after Enter is no echo
LOOK_S = 0.05
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_C1 = re.compile(r"[\x80-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def typeable(text: str) -> str:
    """The text with nothing in it that a terminal would act on."""
    text = _CONTROL.sub(lambda found: chr(0x2400 + min(ord(found[0]), 0x21)), text.replace("\r\n", "\n"))
    return _SURROGATE.sub("\ufffd", _C1.sub("\ufffd", text))


def unsendable(text: str) -> str | None:
    """Why this text would not be a message to the program's model. None: it is one."""
    if text.lstrip()[:1] in ("/", "!"):
        return "a message to a terminal program cannot begin with / or !, which it would take for a command"
    if text.rstrip().endswith("\\"):
        return "a message to a terminal program cannot end in a backslash, which would keep it from being sent"
    return None


@dataclass
class Writer:
    """Hands over on one stage. `signal`: a sign of the program's own that it took the message, where it has one.

    `hint`: what follows in the words that there was none.
    """

    stage: Stage
    reading: Reading
    alive: Callable[[], bool]
    signal: Callable[[], bool | None]
    hint: str = ""

    async def hand_over(self, text: str) -> Handover:
        """Only at an empty prompt. What people type meanwhile must be held back."""
        stage = self.stage
        shown = stage.last_output
        if not stage.write(PASTE + typeable(text).encode() + PASTE_END) or not await stage_written(stage):
            return self._not_sent("the program does not read what is typed")
        if not await self._until(lambda: stage.last_output > shown, ECHO_S):
            return self._not_sent("the program showed nothing of the message that was pasted")
        await self._until(lambda: stage.picture.current and stage.quiet_s >= ECHO_QUIET_S, ECHO_MOST_S)
        if not self.alive() or self.reading.asks(stage.picture.lines()):
            return self._not_sent("the program asked a question while the message was pasted")
        return await self._send(self.reading.line())

    def _not_sent(self, why: str) -> Handover:
        """Enter was not pressed. What stands on the line of a program that lives may still be sent by a person."""
        return Unknown(why) if self.alive() else Refused("the program ended before the message was sent")

    async def _send(self, pasted: Line) -> Handover:
        pressed, before = asyncio.get_running_loop().time(), self.stage.picture.lines()
        self.stage.write(ENTER)
        if await self._until(lambda: self._taken(pasted, pressed, before), AGAIN_S):
            return Accepted()
        if self.reading.line() == pasted and not self.reading.asks(self.stage.picture.lines()):
            self.stage.write(ENTER)
        if await self._until(lambda: self._taken(pasted, pressed, before), TAKEN_S):
            return Accepted()
        return Unknown(f"the program shows no sign that it took the message{self.hint}")

    def _taken(self, pasted: Line, pressed: float, before: list[str]) -> bool:
        signalled = self.signal()
        if signalled is not None:
            return signalled
        reading, lines = self.reading, self.stage.picture.lines()
        if not self.stage.picture.current or self.stage.last_output < pressed:
            return False
        if reading.busy(lines) or reading.left(pasted):
            return True
        if reading.line() == pasted:
            return False
        if reading.asks(lines) or self.stage.typing:  # the message has led to a question, or a person sees to it
            return True
        moved = self.stage.last_output - pressed >= WORKING_S and self.stage.quiet_s < WORKING_S
        return moved or reading.spoke(before)

    async def _until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Look until it holds, the time is over, or the program is gone."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not holds():
            if loop.time() >= end or not self.alive():
                return False
            await asyncio.sleep(LOOK_S)
        return True


async def stage_written(stage: Stage) -> bool:
    return stage.child is not None and await stage.child.written(WRITE_S)
