"""`loopsup agents`: what is installed, what it can do, what is missing, and what is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import agents, app, render
from loopsup.ports import Broken, Capabilities
from tests.cli.conftest import Run
from tests.cli.reading import json_lines


class Adapter:
    """As much of an adapter as the list looks at."""

    name = "fake"
    summary = "a fake agent"
    capabilities = Capabilities(abort=True, resume=True, verbatim=False, process=False)

    def __init__(self, missing: str | None = None) -> None:
        self._missing = missing
        self.asked: list[str | None] = []

    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        self.asked.append(command)
        return self._missing


class Raising(Adapter):
    def missing(self, command: str | None, env: Mapping[str, str]) -> str | None:
        raise RuntimeError("boom\x1b[2J")


def row(adapter: object) -> dict[str, Any]:
    return agents.row(adapter, {"fake": "/opt/fake"}, {})  # type: ignore[arg-type]


CAN = {field.name: field.name in ("abort", "resume") for field in fields(Capabilities)}


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        (
            Adapter(),
            {"name": "fake", "summary": "a fake agent", "missing": None, "error": None, "capabilities": CAN},
        ),
        (
            Adapter("it is not installed"),
            {
                "name": "fake",
                "summary": "a fake agent",
                "missing": "it is not installed",
                "error": None,
                "capabilities": CAN,
            },
        ),
        (
            Raising(),
            {
                "name": "fake",
                "summary": None,
                "missing": None,
                "error": "RuntimeError: boom\x1b[2J",
                "capabilities": None,
            },
        ),
        (
            Broken("x", "ImportError: no y"),
            {"name": "x", "summary": None, "missing": None, "error": "ImportError: no y", "capabilities": None},
        ),
    ],
)
def test_rows(adapter: object, expected: dict[str, Any]) -> None:
    assert row(adapter) == expected


def test_the_configured_command_is_what_is_looked_for() -> None:
    adapter = Adapter()
    row(adapter)
    assert adapter.asked == ["/opt/fake"]


def test_the_page() -> None:
    rows = [row(Adapter()), row(Adapter("it is not installed")), row(Raising())]
    assert list(agents.text_lines(rows, 60, verbose=False)) == [
        "fake: ready · a fake agent",
        "fake: not ready · it is not installed",
        "fake: broken",
        "  RuntimeError: boom\\x1b[2J",
        "`loopsup agents --verbose` also says what each can do",
    ]


def test_the_page_with_what_each_can_do() -> None:
    rows = [row(Adapter()), row(Adapter("it is not installed")), row(Raising())]
    lines = list(agents.text_lines(rows, 60, verbose=True))
    assert list(agents.CAPABILITIES) == list(CAN)
    cannot = ", ".join(word for name, word in agents.CAPABILITIES.items() if not CAN[name])
    said = textwrap.wrap(f"cannot: {cannot}", 60, initial_indent="  ", subsequent_indent="    ")
    can = "  can: be interrupted, take up a conversation again"
    assert lines == [
        "fake: ready",
        "  a fake agent",
        can,
        *said,
        "fake: not ready",
        "  a fake agent",
        "  it is not installed",
        can,
        *said,
        "fake: broken",
        "  RuntimeError: boom\\x1b[2J",
    ]


@pytest.mark.parametrize("width", [20, 33])
def test_the_page_is_never_wider_than_the_terminal(width: int) -> None:
    rows = [row(Adapter("x" * 100)), row(Raising())]
    lines = [*agents.text_lines(rows, width, verbose=True), *agents.text_lines(rows, width, verbose=False)]
    assert max(map(render.columns, lines)) <= width


def test_an_agent_only_the_configuration_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text('default_agent = "codex"\n[agents.pi-old]\ncommand = "/opt/pi"\n')
    monkeypatch.setenv("LOOPSUP_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "none-of-them")
    assert app.run(["agents"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "pi-old: unknown",
        "  not installed: [agents] of the configuration names it, and no adapter of that name is there",
        "codex: unknown",
        "  not installed: default_agent of the configuration names it, and no adapter of that name is there",
        "`loopsup agents --verbose` also says what each can do",
    ]


def test_no_agent_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "none-of-them")
    assert app.run(["agents", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"version": 1, "agents": []}]
    assert app.run(["agents"]) == 0
    assert capsys.readouterr().out.startswith("no agent adapter is installed")


def test_the_path_of_what_is_given_to_an_agent_by_hand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "demo,pi")
    result = run("agents", "--path", "pi-extension")
    assert (result.code, result.err) == (0, "")
    assert Path(result.out.rstrip("\n")).name == "extension.ts"
    assert Path(result.out.rstrip("\n")).is_file()
    assert run("agents", "--path", "pi-extension", "--json").json == {"version": 1, "path": result.out.rstrip("\n")}
    result = run("agents", "--path", "nothing")
    assert (result.code, result.out) == (2, "")
    assert "there is no file called 'nothing'; there is: pi-extension" in result.err
