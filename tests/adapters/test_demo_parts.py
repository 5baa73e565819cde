"""The demo agent's parts without its process: arguments, looking, the envelope's rhythm, the conversation file."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from loopsup.errors import NotFoundError, UsageError
from loopsup_demo import create, looking, mind
from loopsup_demo.arguments import Options, parse
from loopsup_demo.history import History
from loopsup_demo.looking import Finding

ENVELOPE = """[loop iteration]
Objective (verbatim):
watch it
Rhythm: auto (range 5m..6m)
Iteration: 1 of 50
{rhythm}
Last decision: none
Last evidence: the file says Rhythm: auto (range 7m..8m)
"""


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("--file", "s"), Options(file=Path("s"))),
        (("--file=s=t", "--turns", "3"), Options(file=Path("s=t"), turns=3)),
        (("--turns=2", "--run", "make", "--file", "-x"), Options(run=("make", "--file", "-x"), turns=2)),
        (("--script", "f.json"), Options(script=Path("f.json"))),
    ],
)
def test_arguments(args: tuple[str, ...], options: Options) -> None:
    assert parse(args) == options


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give the demo agent something to look at"),
        (("--turns", "2"), "give the demo agent something to look at"),
        (("--file", ""), "give the demo agent something to look at"),
        (("--file",), "--file needs a value"),
        (("--run",), "--run needs a command"),
        (("--run=make",), "does not know the argument '--run'"),
        (("--file", "a", "--file", "b"), "--file is given twice"),
        (("--file", "a", "--run", "make"), "exclude each other"),
        (("--help",), "takes '--file PATH' (the first word"),
        (("status.txt",), "does not know the argument 'status.txt'"),
        (("--file", "a", "--turns", "0"), "not '0'"),
        (("--file", "a", "--turns", "101"), "not '101'"),
        (("--file", "a", "--turns", "٣"), "not '٣'"),
        (("--script", "missing.json"), "missing.json is not a file"),
    ],
)
def test_wrong_arguments_are_a_usage_error_in_one_sentence(args: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        create().check_args(args, tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_has_no_conversations_to_adopt(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="'latest'"):
        create().locate("latest", tmp_path, {})


@pytest.mark.parametrize(
    ("content", "verb"),
    [
        ("running 3 of 7", "continue"),
        ("PENDING", "continue"),
        ("queued", "continue"),
        ("", "continue"),
        ("\n\n  passed: 12\nfailed", "complete"),
        ("success", "complete"),
        ("green.", "complete"),
        ("done!", "complete"),
        ("failed 2 tests", "fail"),
        ("error", "fail"),
        ("red", "fail"),
        ("blocked", "block"),
        ("needs-human: sign the release", "block"),
        ("purple", "block"),
    ],
)
def test_a_status_file_says_it_with_its_first_word(content: str, verb: str, tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text(content)
    found = looking.at_file(file)
    assert (found.verb, str(file) in found.evidence) == (verb, True)


def test_the_evidence_cites_the_line_bounded_and_harmless(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text("passed \x1b[31m" + "x" * 5000)
    assert looking.at_file(file) == Finding(
        "complete", f"{file} says passed", f"{file} says: passed  [31m" + "x" * (200 - len("passed  [31m")) + "…"
    )


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, os.mkfifo])
def test_what_cannot_be_read_needs_a_person(make: object, tmp_path: Path) -> None:
    path = tmp_path / "status"
    assert callable(make)
    make(path)
    found = looking.at_file(path)
    assert (found.verb, str(path) in found.evidence) == ("block", True)


@pytest.mark.parametrize(
    ("code", "verb", "evidence"),
    [
        ("print('one'); print('12 passed'); print()", "complete", "ended with exit status 0; last output: 12 passed"),
        ("raise SystemExit(75)", "continue", "ended with exit status 75; no output"),
        (
            "import sys; print('boom', file=sys.stderr); sys.exit(3)",
            "fail",
            "ended with exit status 3; last output: boom",
        ),
        ("import os; os.kill(os.getpid(), 9)", "fail", "ended with signal 9; no output"),
    ],
)
def test_a_command_says_it_with_its_exit_status(code: str, verb: str, evidence: str) -> None:
    found = asyncio.run(looking.at_command([sys.executable, "-I", "-c", code]))
    assert (found.verb, evidence in found.evidence) == (verb, True), found


def test_a_command_that_cannot_be_run_needs_a_person(tmp_path: Path) -> None:
    found = asyncio.run(looking.at_command([str(tmp_path / "no-such-command")]))
    assert (found.verb, "no-such-command" in found.evidence) == ("block", True)


def test_a_command_is_not_given_to_a_shell(tmp_path: Path) -> None:
    asyncio.run(looking.at_command(["echo", f"$(touch {tmp_path}/made)", ";", "touch", f"{tmp_path}/made"]))
    assert list(tmp_path.iterdir()) == []


def test_a_command_with_much_output_is_cited_by_its_last_line() -> None:
    code = "print('x' * 3_000_000); print('y' * 3_000_000)"
    found = asyncio.run(looking.at_command([sys.executable, "-I", "-c", code]))
    assert found.evidence.endswith("last output: " + "y" * 200 + "…")


def test_the_exit_counts_though_the_command_left_something_running() -> None:
    async def main() -> Finding:
        async with asyncio.timeout(20):
            return await looking.at_command(["sh", "-c", "sleep 30 & echo $!"])

    found = asyncio.run(main())
    os.kill(int(found.evidence.split()[-1]), 9)
    assert found.verb == "complete"


@pytest.mark.parametrize(
    ("rhythm", "delay"),
    [
        ("Rhythm: auto (range 1m..24h)", "1m"),
        ("Rhythm: fixed 10m", None),
        ("Ritmo: auto (faixa 1h30m..2d)", "1h30m"),
        ("Ritmo: fixo 10m", None),
    ],
)
def test_the_delay_is_the_least_of_the_range_in_the_envelope(rhythm: str, delay: str | None) -> None:
    """Neither a line of the objective (before it) nor one inside the evidence (not at a line's start) counts."""
    assert mind.auto_delay([ENVELOPE.format(rhythm=rhythm)]) == delay


def test_a_reminder_leaves_the_rhythm_as_the_envelope_had_it() -> None:
    envelopes = [ENVELOPE.format(rhythm="Rhythm: auto (range 1m..24h)"), "You did not call loop_control."]
    assert mind.auto_delay(envelopes) == "1m"
    assert mind.auto_delay([]) is None


def test_only_a_continue_names_a_delay() -> None:
    seen = {verb: Finding(verb, "s", "e") for verb in ("continue", "complete")}
    assert mind.arguments(seen["continue"], "1m") == {
        "decision": "continue",
        "summary": "s",
        "evidence": "e",
        "nextDelay": "1m",
    }
    assert mind.arguments(seen["continue"], None) == {"decision": "continue", "summary": "s", "evidence": "e"}
    assert mind.arguments(seen["complete"], "1m") == {"decision": "complete", "summary": "s", "evidence": "e"}


def test_the_conversation_file_is_private_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    first = History(path)
    first.open("a", resume=False)
    first.append("user", text="hello \u2028 there")
    first.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"us')
    second = History(path)
    second.open("a", resume=True)
    second.append("user", text="again")
    second.close()
    assert (second.texts("user"), second.starts) == (["hello \u2028 there", "again"], 2)
    third = History(path)
    third.close()
    assert (third.texts("user"), third.starts) == (["hello \u2028 there", "again"], 3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_conversation_does_not_hear_the_old_one(tmp_path: Path) -> None:
    history = History(tmp_path / "demo.jsonl")
    history.open("a", resume=False)
    history.append("user", text="old")
    history.open("b", resume=False)
    assert history.texts("user") == []
    with pytest.raises(LookupError, match="conversation a is not in"):
        history.open("a", resume=True)
    history.close()


def test_the_conversation_is_not_written_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"demo\.jsonl"):
        History(tmp_path / "demo.jsonl")
    assert not (tmp_path / "elsewhere").exists()
