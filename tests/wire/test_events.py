"""The line of an event: bounded, whatever an agent wrote."""

from __future__ import annotations

import json

import pytest

from loopsup.wire import events
from loopsup.wire.events import ConversationEvent, encode

SMALL = {"turnId": "1.1", "text": "hello", "args": {"path": "a", "lines": [1, 2, None, True]}}


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENT", 80_000)
    monkeypatch.setattr(events, "CUTS", (2000, 200))


def _read(data: object) -> object:
    line = encode(ConversationEvent(7, 0, "assistant.message", data, 3))  # type: ignore[arg-type]
    assert len(line) <= events.MAX_EVENT
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    event = json.loads(line)
    assert (event["seq"], event["type"], event["iteration"]) == (7, "assistant.message", 3)
    return event["data"]


def test_an_event_that_fits_is_kept_as_it_is() -> None:
    envelope = {"text": "\x01" * 1024 * 1024}  # the longest objective, escaped sixfold
    assert _read(SMALL) == SMALL
    assert _read(envelope) == envelope


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("letter", ["A", "\N{GRINNING FACE}", "\x1b"])
def test_of_too_long_a_text_the_beginning_is_kept(letter: str) -> None:
    text = letter * 90_000
    cut = f"{letter * 2000}… (88000 more characters)"
    assert _read({**SMALL, "text": text, "args": {"deep": [text]}}) == {**SMALL, "text": cut, "args": {"deep": [cut]}}


@pytest.mark.usefixtures("tight")
def test_many_long_texts_are_cut_shorter() -> None:
    kept = _read({"turnId": "1.1", "parts": ["A" * 3000] * 100})
    assert kept == {"turnId": "1.1", "parts": [f"{'A' * 200}… (2800 more characters)"] * 100}


@pytest.mark.usefixtures("tight")
def test_of_countless_small_things_only_that_they_were_there() -> None:
    kept = _read({"turnId": "1.1", "numbers": list(range(90_000))})
    assert kept == {"turnId": "1.1", "numbers": "… (left out: too large)"}
