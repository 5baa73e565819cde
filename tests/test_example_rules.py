"""The ready-made rules: each finds what it is for, and leaves alone what only looks like it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopsup.core.rules import TEXT, Rule, Source, Stream
from loopsup.matching.matcher import Matcher
from loopsup.store.rulefile import parse

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "rules"
BASH = Stream(Source.TOOL, "bash", "c1")
WRITE = Stream(Source.TOOL, "write", "c2")
FILES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")

COMMANDS = {
    "no-force-push": (
        [
            "git push --force",
            "git push -f origin main",
            "git push origin main --force-with-lease",
            "cd x && git -C y push -uf origin main",
            "git push origin +main",
            "git push --mirror backup",
            "git push origin --delete old",
        ],
        [
            "git push",
            "git push origin feature/fix-f",
            "git push -u origin main",
            "git push --follow-tags",
            "git fetch --force",
            "git push; rm -f x",
            "git log | grep push",
            "git push origin main && tail -f log",
        ],
    ),
    "no-rm-rf": (
        [
            "rm -rf /",
            "rm -rf ~/work",
            "rm -fr $DIR/x",
            'rm -r -f "$HOME"',
            "sudo rm --recursive --force /var/x",
            "rm -rf .",
            "rm -rf ..",
            "rm -rf *",
            "rm -rf -- /tmp/x",
            "rm -Rf '/tmp/a b'",
            "find / -name x -delete",
            "git clean -fdx",
        ],
        [
            "rm -rf build/tmp",
            "rm -r .cache-of-mine",
            "rm file",
            "rm -f /tmp/one-file",
            "npm rm -g x",
            "find . -name '*.pyc' -delete",
            "git clean -n",
            "docker run --rm -it /bin/sh",
        ],
    ),
    "no-secrets-printed": (
        [
            "echo AKIAABCDEFGHIJKLMNOP",
            "curl -H 'Authorization: ghp_" + "a" * 36 + "'",
            "cat .env",
            "tail -5 config/.env.production",
            "cat ~/.ssh/id_ed25519",
            "env",
            "printenv | sort",
            "cd x; env",
        ],
        [
            "cat .environment.md",
            "env FOO=1 make",
            "cat README.md",
            "printenv HOME",
            "ls ~/.ssh",
            "source .env && make",
            "npm run env-check",
        ],
    ),
    "no-disabled-tests": (
        ["git commit --no-verify -m x", "git commit -am 'x' --no-verify"],
        ["git commit -m 'verify'", "pytest -k 'not slow'", "git push --no-verify-x"],
    ),
}

TEXTS = {
    "no-disabled-tests": (
        [
            "I'll just disable the failing test for now.",
            "I will skip this flaky test.",
            "Let's temporarily comment out the assertion.",
            "I'm going to simply remove the broken spec.",
            "I can xfail those tests",
        ],
        [
            "The test fails because the parser drops a line; I will fix the parser.",
            "I will not skip any test.",
            "The suite has a skip marker already.",
            "I'll remove the dead code, then run the tests.",
            "I'll delete the file. The test then passes.",
        ],
    ),
    "no-secrets-printed": (
        [
            "Your key is sk-ant-" + "a1" * 20,
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "token xoxb-1234567890-abc",
            "github_pat_" + "A" * 60,
        ],
        [
            "The variable ANTHROPIC_API_KEY is set.",
            "task-based work, risk-free",
            "-----BEGIN CERTIFICATE-----",
            "The env of the process is inherited.",
        ],
    ),
}

WRITTEN = {
    "no-disabled-tests": (
        [
            "it.skip('works', () => {})",
            "xdescribe('a', f)",
            "@pytest.mark.skip\ndef test_a(): ...",
            "#[ignore]\nfn a() {}",
        ],
        ["it('skips blank lines', f)", "def test_skip_marker(): ...", "exit('now')", "git ls-files --ignored"],
    ),
}


def rule_of(name: str) -> Rule:
    path = FOLDER / f"{name}.md"
    parsed = parse(path.read_text(encoding="utf-8"), path.stem, path.name)
    assert (parsed.enabled, parsed.why, parsed.problems) == (True, None, ())
    return parsed.rule


def cases(table: dict[str, tuple[list[str], list[str]]]) -> list[tuple[str, str, bool]]:
    return [
        (name, text, wanted)
        for name, (yes, no) in table.items()
        for texts, wanted in ((yes, True), (no, False))
        for text in texts
    ]


def test_every_example_is_tried_and_nothing_is_wrong_in_it() -> None:
    assert {path.stem for path in FILES} == set(COMMANDS)
    for path in FILES:
        matcher = Matcher([rule_of(path.stem)])
        assert matcher.problems == []
        assert rule_of(path.stem).content.strip()


def streamed(matcher: Matcher, stream: Stream, text: str) -> bool:
    """In pieces of seven characters, as models send them."""
    for at in range(0, len(text), 7):
        if matcher.delta(stream, text[at : at + 7]):
            return True
    return bool(matcher.whole(stream, text))


@pytest.mark.parametrize(("name", "command", "wanted"), cases(COMMANDS))
def test_in_a_command(name: str, command: str, wanted: bool) -> None:
    rule = rule_of(name)
    arguments = {"command": command}
    assert bool(Matcher([rule]).call(BASH, arguments)) is wanted
    assert streamed(Matcher([rule]), BASH, json.dumps(arguments)) is wanted


@pytest.mark.parametrize(("name", "text", "wanted"), cases(TEXTS))
def test_in_a_text(name: str, text: str, wanted: bool) -> None:
    assert streamed(Matcher([rule_of(name)]), TEXT, text) is wanted


@pytest.mark.parametrize(("name", "content", "wanted"), cases(WRITTEN))
def test_in_a_file_that_is_written(name: str, content: str, wanted: bool) -> None:
    assert bool(Matcher([rule_of(name)]).call(WRITE, {"path": "a", "content": content})) is wanted


@pytest.mark.parametrize("name", ["no-force-push", "no-rm-rf"])
def test_talking_about_it_is_no_offence(name: str) -> None:
    for command in COMMANDS[name][0]:
        assert not Matcher([rule_of(name)]).delta(TEXT, f"I must not run `{command}` here.")
