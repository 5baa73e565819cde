"""`loopsup tick` beside others: who finds a session taken leaves it, which is no failure."""

from __future__ import annotations

import pytest

from loopsup.cli import firing
from loopsup.cli.firing import Outcome
from loopsup.store.lock import LockHeldError, Owner


def test_a_session_that_somebody_puts_in_order_just_now_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(name: str) -> None:
        raise LockHeldError(Owner(4711))

    monkeypatch.setattr(firing, "_look", taken)
    said = LockHeldError(Owner(4711)).message
    assert firing.fire(["project"], jobs=1, detach=False, tell=None) == [Outcome("project", "left", said, 0)]
