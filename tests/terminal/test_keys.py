"""What a person typed: an unsent text or none; what their terminal answered is not typed."""

from __future__ import annotations

import pytest

from loopsup.terminal.keys import Draft, without_replies

QUIET = [b"\x1b[I", b"\x1b[O", b"\x1b[<64;10;10M", b"\x1b[5~", b"\x1b[C"]
OPEN = [b"a", b"\x1b[200~x\r\n\x1b[201~", b"one\x1b\r", b"one\\\r", b"\x7f", b"sent\rmore"]
SENT = [b"text\r", b"text\x03", b"text\x15", b"\x1b[200~x\x1b[201~\r"]


@pytest.mark.parametrize("keys", QUIET)
def test_looking_around_is_no_draft(keys: bytes) -> None:
    draft = Draft()
    draft.typed(keys)
    assert (draft.touched, draft.open) == (False, False)


@pytest.mark.parametrize("keys", OPEN)
def test_text_without_enter_is_a_draft(keys: bytes) -> None:
    draft = Draft()
    draft.typed(keys)
    assert (draft.touched, draft.open) == (True, True)


@pytest.mark.parametrize("keys", SENT)
def test_what_was_sent_or_cleared_is_none(keys: bytes) -> None:
    draft = Draft()
    draft.typed(keys)
    assert (draft.touched, draft.open) == (True, False)


def test_an_older_line_may_have_been_brought_back() -> None:
    draft = Draft()
    draft.typed(b"\x1b[A")
    assert (draft.touched, draft.open) == (True, False)
    draft.rest()
    assert (draft.touched, draft.open) == (False, False)


def test_answers_of_the_terminal_are_left_out() -> None:
    replies = b"\x1b[?62;1;6c\x1b[>0;276;0c\x1b[12;1R\x1b[?1u\x1b[?2026;2$y\x1b]11;rgb:0/0/0\x1b\\\x1bP>|xterm\x1b\\"
    assert without_replies(b"a" + replies + b"\x1b[Ab\x1b[<0;3;4M") == b"a\x1b[Ab\x1b[<0;3;4M"
