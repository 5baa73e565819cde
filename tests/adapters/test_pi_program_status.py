"""What Pi says of its state to its terminal."""

from __future__ import annotations

import base64

import pytest

from loopsup_pi.program_status import Status, read

TITLE = base64.b64encode(b"Delete it?")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"7501;state=working:app=pi", Status("working", None)),
        (b"7501;state=idle:app=pi", Status("idle", None)),
        (b"7501;state=blocked:app=pi:kind=permission:msg=" + TITLE, Status("blocked", "Delete it?")),
        (b"7501;state=blocked:app=pi", Status("blocked", "a dialog")),
        (b"7501;state=blocked:msg=###", Status("blocked", "a dialog")),
        (b"7501;\xff\xfe", Status("", None)),
        (b"0;state=working", None),
    ],
)
def test_a_state(said: bytes, expected: Status | None) -> None:
    assert read(said) == expected
