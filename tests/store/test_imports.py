"""`status` reads files only: what it needs must not bring in what makes a start slow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.store.conftest import ROOT, Spawn

IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
HEAVY = {
    "asyncio",
    "psutil",
    "typer",
    "click",
    "rich",
    "pydantic",
    "subprocess",
    "email",
    "http",
    "secrets",
    "random",
}


@pytest.mark.slow
def test_store_and_wire_import_nothing_heavy(spawn: Spawn) -> None:
    modules = [
        ".".join(Path(path).relative_to(ROOT).with_suffix("").parts)
        for part in ("store", "wire", "core")
        for path in (ROOT / "loopsup" / part).glob("*.py")
        if path.stem != "__init__"
    ]
    assert len(modules) > 15
    out, _ = spawn(IMPORT_ALL, json.dumps(modules)).communicate(timeout=100)
    assert HEAVY & set(json.loads(out)) == set()
