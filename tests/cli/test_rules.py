"""`loopsup rules`: list, check, test, trust."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import render
from tests.cli.support import Result

Run = Callable[..., Result]
GOOD = "---\ntrigger: foo\nscope: text, tool:edit(*.ts)\nrepeat: after-gap\ngap: 3\ncontext: keep\n---\nNo foo.\n"


def write(where: str, text: str = GOOD) -> Path:
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Callable[..., Path]:
    """A rule of the user's own."""
    return lambda name, text=GOOD: write(str(tmp_path / "config" / "loopsup" / "rules" / f"{name}.md"), text)


def answer(result: Result) -> Any:
    return json.loads(result.out)


def test_without_rules_it_says_what_they_are(run: Run) -> None:
    assert run("rules", "list") == Result(0, "no rules: they are files like .loopsup/rules/no-force-push.md\n", "")
    assert answer(run("rules", "list", "--json")) == {"version": 1, "enabled": True, "rules": []}
    assert run("rules", "check") == Result(0, "0 rules, nothing wrong\n", "")


def test_list_says_what_becomes_of_each(run: Run, mine: Callable[..., Path], tmp_path: Path) -> None:
    mine("a")
    write(".loopsup/rules/b.md")
    write(".omp/rules/c.md", "just a page\n")
    shown = run("rules", "list").out.splitlines()
    assert shown[0] == "b: untrusted  .loopsup/rules/b.md"
    assert shown[1:3] == ["  scope: text, tool:edit(*.ts)", "  trigger: foo"]
    assert shown[3] == "c: no trigger  .omp/rules/c.md"
    assert shown[4] == f"a: active  {tmp_path}/config/loopsup/rules/a.md"


def test_a_long_pattern_is_cut_to_the_line(
    run: Run, mine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    mine("a", f"---\ntrigger: {'x' * 100}\n---\nText.\n")
    (line,) = [line for line in run("rules", "list").out.splitlines() if line.startswith("  trigger: xx")]
    assert len(line) == 40


def test_on_a_terminal_no_words_of_a_file_get_into_the_first_column(
    run: Run, mine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "real_width", lambda stream=None: 40)
    mine("a", f"---\ntrigger: x\nscope: text, '{'y ' * 20}loopsup: well'\nagents: {'z' * 60}\n---\nText.\n")
    first, *more = run("rules", "list").out.splitlines()
    assert first.startswith("a: disabled")
    assert len(more) > 4
    assert all(line.startswith("  ") and len(line) <= 40 for line in more)


def test_list_names_what_shadows(run: Run, mine: Callable[..., Path], tmp_path: Path) -> None:
    mine("a")
    mine("b", GOOD.replace("trigger", "name: a\ntrigger"))
    assert f"a: shadowed by {tmp_path}/config/loopsup/rules/a.md  " in run("rules", "list").out


def test_a_row_has_everything(run: Run, mine: Callable[..., Path]) -> None:
    path = mine("a")
    (row,) = answer(run("rules", "list", "--json"))["rules"]
    assert row == {
        "name": "a",
        "path": str(path),
        "file": str(path),
        "standing": "active",
        "project": None,
        "shadowedBy": None,
        "why": None,
        "problems": [],
        "triggers": ["foo"],
        "scope": ["text", "tool:edit(*.ts)"],
        "globs": [],
        "repeat": "after-gap",
        "gap": 3,
        "context": "keep",
    }


def test_switched_off_it_says_so(run: Run, mine: Callable[..., Path], tmp_path: Path) -> None:
    mine("a")
    (tmp_path / "config" / "loopsup" / "config.toml").write_text("[ttsr]\nenabled = false\n")
    assert run("rules", "list").out.startswith("stream rules are switched off in the configuration")
    assert answer(run("rules", "list", "--json"))["enabled"] is False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("---\ntrigger: '('\n---\nText.\n", "the trigger '(' is not understood: missing ): ("),
        ("---\ntrigger: .*\n---\nText.\n", "the trigger '.*' is not understood: it is found in every text"),
        ("---\ntrigger: x\ngap: ten\n---\nText.\n", "its gap 'ten' is no whole number"),
        ("---\ntrigger: x\n---\n", "it has no text, so the model would be told nothing"),
    ],
)
def test_check_names_what_is_wrong(run: Run, mine: Callable[..., Path], text: str, told: str) -> None:
    mine("good")
    path = mine("bad", text)
    result = run("rules", "check")
    assert result.code == 2
    assert result.out.startswith(f"{path}: {told}")
    assert run("rules", "check", str(path)).out == result.out
    assert run("rules", "check", str(path.with_name("good.md"))) == Result(0, "1 rule, nothing wrong\n", "")
    assert answer(run("rules", "check", "--json"))["ok"] is False


def test_check_names_the_rules_that_are_not_trusted(run: Run) -> None:
    write(".loopsup/rules/b.md")
    told = "1 rule, nothing wrong\nnot trusted, so it does not act: b; see `loopsup rules trust`\n"
    assert run("rules", "check") == Result(0, told, "")
    assert run("rules", "trust").code == 0
    assert run("rules", "check") == Result(0, "1 rule, nothing wrong\n", "")


def test_check_of_a_file_that_is_no_rule(run: Run) -> None:
    path = write("page.md", "just a page\n")
    assert run("rules", "check", str(path)) == Result(2, "page.md: it has no trigger, so it is no stream rule\n", "")
    other = write("other.md", "---\nquestion: Is it?\n---\n")
    assert "which loopsup does not have" in run("rules", "check", str(other)).out


def test_check_of_a_file_that_is_not_there(run: Run) -> None:
    result = run("rules", "check", "nowhere.md")
    assert result == Result(2, "", "loopsup: the rule nowhere.md cannot be read: No such file or directory\n")


def event(kind: str, **data: Any) -> str:
    return json.dumps({"v": 1, "seq": 1, "at": "2026-10-10T00:00:00.000Z", "type": kind, "data": data})


TRANSCRIPT = [
    event("user.message", messageId="m", origin="loop", text="foo is no matter here"),
    event("assistant.turn_start", turnId="1"),
    event("assistant.message", turnId="1", text="I use foo here", toolRequests=[]),
    event("assistant.turn_end", turnId="1", stopReason="stop"),
    event("assistant.turn_start", turnId="2"),
    event(
        "assistant.message",
        turnId="2",
        text="",
        toolRequests=[{"toolCallId": "c", "toolName": "bash", "arguments": {"command": "echo\nfoo"}}],
    ),
    "damaged",
    event("assistant.turn_start", turnId="3"),
    json.dumps({"type": "assistant.message", "agentId": "sub", "data": {"text": "foo"}}),
]


def test_test_says_where_a_rule_would_have_acted(run: Run) -> None:
    rule = write("r.md", "---\ntrigger: foo\n---\nNo foo.\n")
    log = write("events.jsonl", "\n".join(TRANSCRIPT) + "\n")
    result = run("rules", "test", str(rule), "--against", str(log))
    assert result == Result(
        0,
        "events.jsonl:3: text: would interrupt: I use foo here\n"
        "events.jsonl:6: bash: found again, would not act: foo\n"
        "r: found 2 times, would have interrupted once\n",
        "",
    )
    assert answer(run("rules", "test", str(rule), "--against", str(log), "--json")) == {
        "version": 1,
        "rule": "r",
        "findings": [
            {"line": 3, "turn": "1", "stream": "text", "trigger": "foo", "excerpt": "I use foo here", "acts": True},
            {"line": 6, "turn": "2", "stream": "bash", "trigger": "foo", "excerpt": "foo", "acts": False},
        ],
    }


def test_test_reads_the_log_of_the_copilot_cli(run: Run) -> None:
    rule = write("r.md", "---\ntrigger: foo\n---\nNo foo.\n")
    lines = [
        event("user.message", content="hello"),
        event("assistant.turn_start", turnId="0"),
        event("assistant.message", content="", toolRequests=[{"name": "bash", "arguments": {"command": "foo"}}]),
    ]
    log = write("events.jsonl", "\n".join(lines))
    assert (
        "events.jsonl:3: bash: would interrupt: foo\n" in run("rules", "test", str(rule), "--against", str(log)).out
    )


def test_test_reads_any_text(run: Run) -> None:
    rule = write("r.md", "---\ntrigger: (?m)^foo\n---\nNo foo.\n")
    text = write("notes.txt", "no foo\nfoo \x1b[31mred\n")
    result = run("rules", "test", str(rule), "--against", str(text))
    assert result.out.splitlines()[0] == "notes.txt:2: text: would interrupt: foo \\x1b[31mred"


def test_test_finds_nothing_where_nothing_is(run: Run) -> None:
    rule = write("r.md", "---\ntrigger: foo\n---\nNo foo.\n")
    text = write("notes.txt", "")
    result = run("rules", "test", str(rule), "--against", str(text))
    assert result == Result(0, "r: found never, would have interrupted never\n", "")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("test",), "say which rule and on what: loopsup rules test FILE --against TRANSCRIPT"),
        (("test", "r.md"), "say which rule and on what: loopsup rules test FILE --against TRANSCRIPT"),
        (("test", "page.md", "--against", "page.md"), "page.md is no rule that could act: it has no trigger"),
        (("test", "bad.md", "--against", "page.md"), "bad.md is no rule that could act: missing ): ("),
        (("test", "r.md", "--against", "nowhere"), "cannot read nowhere: No such file or directory"),
        (("dance",), "'dance' is nothing that `loopsup rules` can do; say one of: list, check, test, trust"),
        (("list", "r.md"), "`loopsup rules list` takes no file"),
        (("list", "--remove"), "--remove belongs to `loopsup rules trust`"),
        (("check", "--against", "x"), "--against belongs to `loopsup rules test`"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(run: Run, argv: tuple[str, ...], told: str) -> None:
    write("r.md")
    write("page.md", "just a page\n")
    write("bad.md", "---\ntrigger: (\n---\nText.\n")
    assert run("rules", *argv) == Result(2, "", f"loopsup: {told}\n")


def test_trust_lets_a_projects_rules_act_as_they_are(run: Run, tmp_path: Path) -> None:
    write(".loopsup/rules/a.md")
    write(".omp/rules/page.md", "just a page\n")
    result = run("rules", "trust")
    work = tmp_path / "work"
    assert result == Result(
        0,
        f".loopsup/rules/a.md\n  foo\n1 rule of {work} trusted; sessions that run now keep what they started with\n",
        "",
    )
    assert "a: active  " in run("rules", "list").out
    write(".loopsup/rules/a.md", GOOD + "More.\n")
    assert "a: changed  " in run("rules", "list").out
    assert answer(run("rules", "trust", "--json")) == {
        "version": 1,
        "trusted": True,
        "rules": [{"name": "a", "path": ".loopsup/rules/a.md", "triggers": ["foo"]}],
    }
    assert "a: active  " in run("rules", "list").out
    assert run("rules", "trust", "--remove").out.startswith(f"the rules of {work} are not trusted any more")
    assert "a: untrusted  " in run("rules", "list").out


def test_trust_where_there_is_nothing_to_trust(run: Run, mine: Callable[..., Path]) -> None:
    mine("a")
    result = run("rules", "trust")
    assert result.code == 3
    assert result.err.startswith("loopsup: this project has no stream rules")


def test_a_rules_own_words_reach_no_terminal_as_they_are(run: Run, mine: Callable[..., Path]) -> None:
    mine("a", '---\nname: "x\\x1b[31m"\ntrigger: foo\n---\nText.\n')
    assert "\x1b" not in run("rules", "list").out
