"""Limits that sessions share: one asks, the others wait; damage and strangers bind nobody."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from loopsup.store.limits import SharedLimits

NOW = 1_791_590_400_000


def pair(folder: Path) -> tuple[SharedLimits, SharedLimits]:
    return SharedLimits(folder / "limits", "one"), SharedLimits(folder / "limits", "two")


def test_the_first_looks_after_it_and_the_second_waits(folder: Path) -> None:
    one, two = pair(folder)
    assert one.take("pi-x", NOW + 100, NOW) is None
    assert two.take("pi-x", NOW + 200, NOW, NOW + 200) == NOW + 100
    assert one.take("pi-x", NOW + 300, NOW) is None  # its own
    assert two.take("pi-x", NOW + 200, NOW) == NOW + 300
    assert two.take("pi-y", NOW + 200, NOW) is None  # another account
    assert (folder / "limits").stat().st_mode & 0o777 == 0o700
    assert (folder / "limits" / "pi-x.json").stat().st_mode & 0o777 == 0o600


def test_who_was_told_an_earlier_time_does_not_wait_longer(folder: Path) -> None:
    one, two = pair(folder)
    one.take("k", NOW + 500, NOW)
    assert two.take("k", NOW + 200, NOW, NOW + 200) is None
    assert one.take("k", NOW + 900, NOW) == NOW + 200


def test_a_note_whose_time_has_passed_binds_nobody(folder: Path) -> None:
    one, two = pair(folder)
    one.take("k", NOW + 100, NOW)
    assert two.take("k", NOW + 900, NOW + 100) is None
    assert one.take("k", NOW + 999, NOW + 101) == NOW + 900


def test_an_answer_opens_it_for_everybody(folder: Path) -> None:
    one, two = pair(folder)
    assert one.is_open("k")
    one.take("k", NOW + 100, NOW)
    two.clear("k")  # not its own
    assert not two.is_open("k")
    one.clear("k")
    assert two.is_open("k")
    assert two.take("k", NOW + 100, NOW) is None


@pytest.mark.parametrize("damage", [b"\xff", b"[]", b'{"until":"soon","by":"one"}', b'{"until":1e99,"by":2}', b"{"])
def test_damage_binds_nobody(folder: Path, damage: bytes) -> None:
    one, two = pair(folder)
    one.take("k", NOW + 100, NOW)
    (folder / "limits" / "k.json").write_bytes(damage)
    assert two.take("k", NOW + 100, NOW) is None
    assert one.take("k", NOW + 100, NOW) == NOW + 100


def test_a_file_that_cannot_be_used_is_none(folder: Path) -> None:
    one, two = pair(folder)
    one.take("k", NOW + 100, NOW)
    with (folder / "limits" / "k.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert two.take("k", NOW + 100, NOW) is None
        assert two.is_open("k")
    path = folder / "limits" / "k.json"
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert two.take("k", NOW + 100, NOW) is None
    two.clear("k")


def test_no_name_leads_out_of_the_folder(folder: Path) -> None:
    one, _ = pair(folder)
    one.take("../../x/" + "y" * 500, NOW + 100, NOW)
    (made,) = (folder / "limits").iterdir()
    assert len(made.name) < 120
