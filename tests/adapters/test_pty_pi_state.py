"""What Pi says of its state in its terminal."""

from __future__ import annotations

import asyncio
import base64

import pytest

from loopsup.terminal.stage import Stage
from loopsup.testing.recording import RecordingEvents
from loopsup_pty.pi import PiVoice
from loopsup_pty.profiles import KNOWN
from loopsup_pty.reading import Reading

TITLE = base64.b64encode(b"Delete it?")


@pytest.mark.parametrize(
    ("said", "works", "asks"),
    [
        (b"7501;state=working:app=pi", True, None),
        (b"7501;state=idle:app=pi", False, None),
        (b"7501;state=blocked:app=pi:kind=permission:msg=" + TITLE, False, "Delete it?"),
        (b"7501;state=blocked:app=pi", False, "a dialog"),
        (b"7501;state=blocked:msg=###", False, "a dialog"),
        (b"0;state=working", False, None),
        (b"7501;\xff\xfe", False, None),
    ],
)
def test_a_state(said: bytes, works: bool, asks: str | None) -> None:
    async def scenario() -> None:
        voice = PiVoice(Reading(Stage(), KNOWN["pi-tui"]), RecordingEvents())
        voice.mark()
        voice.osc(said)
        assert (voice.works(), voice.asks(), voice.took()) == (works, asks, True if works else None)
        voice.mark()
        assert voice.took() is None, "what it did before is no sign that it took the next message"

    asyncio.run(scenario())
