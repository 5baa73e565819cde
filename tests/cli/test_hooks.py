"""`loopsup hooks`: the ready ones, the one in force, and the one line of the configuration that names it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from loopsup.errors import ConfigError
from loopsup.store import config_edit
from loopsup.store.config_edit import with_hook
from tests.cli.conftest import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "loopsup" / "config.toml"


def program(path: Path, body: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def test_the_ready_hooks(run: Run) -> None:
    rows = run("hooks", "list", "--json").json["hooks"]
    assert [(row["name"], row["enabled"]) for row in rows] == [("append-log", False), ("notify-desktop", False)]
    assert all(os.access(row["path"], os.X_OK) for row in rows)
    assert run("hooks", "list").out == (
        "  append-log      append one line for each event to a log file\n"
        "  notify-desktop  a desktop notification (notify-send on Linux, osascript on macOS)\n"
    )


def test_a_ready_hook_is_copied_and_named(run: Run, file: Path) -> None:
    copy = file.parent / "hooks" / "append-log"
    assert run("hooks", "enable", "append-log").code == 0
    assert tomllib.loads(file.read_text()) == {"on_attention": str(copy)}
    assert (copy.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert run("hooks", "list").out.startswith("* append-log")
    found = {"version": 1, "path": str(copy), "source": "on_attention of the configuration", "problem": None}
    assert run("hooks", "show", "--json").json == found
    assert run("hooks", "enable", "append-log").code == 0, "again is no harm"
    copy.write_text("mine\n")
    assert run("hooks", "enable", "append-log").code == 4
    assert copy.read_text() == "mine\n"


def test_one_line_changes_and_nothing_else(run: Run, file: Path, tmp_path: Path) -> None:
    hook = program(tmp_path / 'a "hook" é')
    before = '# mine\ndefault_agent = "demo"\n\n[ttsr]  # rules\nenabled = false\n'
    file.parent.mkdir(parents=True)
    real = tmp_path / "dotfile"
    real.write_text(before)
    real.chmod(0o640)
    file.symlink_to(real)
    assert run("hooks", "enable", str(hook)).code == 0
    line, rest = real.read_text().split("\n", 1)
    assert (tomllib.loads(line), rest) == ({"on_attention": str(hook)}, before)
    other = program(tmp_path / "other")
    assert run("hooks", "enable", str(other)).code == 0
    assert real.read_text() == f'on_attention = "{other}"\n{before}'
    assert (file.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert run("hooks", "disable").code == 0
    assert real.read_text() == before
    assert run("hooks", "disable").code == 0
    assert run("hooks", "show").out == "no hook is named; `loopsup hooks list` shows the ready ones\n"


@pytest.mark.parametrize("text", ['on_attention = """\n/a/b"""\n', 'note = """\non_attention = 1\n"""\n'])
def test_what_is_not_changed_safely_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match='put this line at its top: on_attention = "/x"'):
        with_hook(text, "/x", "config.toml")


def test_what_cannot_be_a_hook_is_refused(run: Run, file: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    for name in ("nothing", str(tmp_path / "gone"), str(tmp_path), str(plain)):
        assert run("hooks", "enable", name).code in (2, 3), name
    for argv in (("enable",), ("show", "x"), ("frob",), ()):
        assert run("hooks", *argv).code == 2, argv
    assert not file.exists()
    file.parent.mkdir(parents=True)
    file.write_text("typo = 1\n")
    assert run("hooks", "enable", "append-log").code == 2
    assert file.read_text() == "typo = 1\n"


def test_a_hook_that_cannot_be_used_is_told(run: Run, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('on_attention = "/nowhere/hook"\n')
    shown = run("hooks", "show")
    assert (shown.code, "which is no file" in shown.out) == (2, True)
    assert run("hooks", "test").code == 2


def test_an_agent_may_not_choose_it(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSUP_AGENT", "1")
    assert run("hooks", "enable", "append-log").code == 4
    assert run("hooks", "disable").code == 4
    assert not file.exists()


@pytest.mark.slow  # runs the hook
def test_the_hook_in_force_is_tried_with_an_event(run: Run, tmp_path: Path) -> None:
    assert run("hooks", "test").code == 3
    got = tmp_path / "got"
    run("hooks", "enable", str(program(tmp_path / "good", f"cat > {got}; printf '\\033[31mred\\n'")))
    done = run("hooks", "test")
    assert (done.code, "ended with exit status 0" in done.out, "\x1b" in done.out) == (0, True, False)
    event = json.loads(got.read_bytes())
    assert (event["status"], event["session"]["id"], event["version"]) == ("completed", "test", 1)
    run("hooks", "enable", str(program(tmp_path / "bad", "echo no; exit 7")))
    failed = run("hooks", "test", "--json")
    assert failed.code == 1
    assert (failed.json["ok"], failed.json["hook"]["exit"], failed.json["hook"]["stderr"]) == (False, 7, "no\n")


def test_what_is_no_file_is_left_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "odd" / "config.toml"
    odd.parent.mkdir()
    odd.symlink_to(os.devnull)
    monkeypatch.setenv("LOOPSUP_CONFIG", str(odd))
    monkeypatch.setattr(config_edit, "write_atomic", lambda *_: pytest.fail("never: whoever is root replaces it"))
    result = run("hooks", "enable", "append-log")
    assert (result.code, "is no file" in result.err) == (2, True)
    assert os.listdir(odd.parent) == ["config.toml"], "nothing was copied beside it"


def test_a_pipe_where_the_copy_goes_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "loopsup" / "hooks"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "append-log")
    result = run("hooks", "enable", "append-log")
    assert (result.code, "it is a pipe and no file" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('on_attention = "/a"  # mine: "x"\nx = 1\n', 'on_attention = "/new"  # mine: "x"\nx = 1\n'),
        (
            'y = 2\r\non_attention = "/a\\"#b" # mine\r\nx = 1\r\n',
            'y = 2\r\non_attention = "/new" # mine\r\nx = 1\r\n',
        ),
        ("on_attention='/a' #'", 'on_attention = "/new" #\'\n'),
    ],
)
def test_the_comment_and_the_line_end_stay(before: str, after: str) -> None:
    assert with_hook(before, "/new", "F") == after
