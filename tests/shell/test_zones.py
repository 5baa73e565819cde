"""Zones by name; the machine's own knows of daylight saving where it has a name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from loopsup.shell import zones
from loopsup.shell.zones import zone_of


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_no_such_zone(name: str) -> None:
    assert zone_of(name) is None


def test_by_name() -> None:
    assert zone_of("Europe/Lisbon") == ZoneInfo("Europe/Lisbon")


def test_the_machines_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")
    assert zone_of("") == ZoneInfo("America/New_York")
    monkeypatch.delenv("TZ")
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    monkeypatch.setattr(zones, "LOCALTIME", link)
    assert zone_of("") == ZoneInfo("Asia/Tokyo")
    monkeypatch.setattr(zones, "LOCALTIME", tmp_path / "none")
    found = zone_of("")
    assert found is not None
    here = datetime(1970, 1, 1, tzinfo=UTC).astimezone()
    assert here.astimezone(found).utcoffset() == here.utcoffset()
