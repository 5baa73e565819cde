"""Pi's command line: what is refused, what is added; and whether Pi can be started at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.errors import UsageError
from loopsup.ports import Conversation
from loopsup_pi import arguments, create

HEAD = ["/bin/pi", "--mode", "rpc", "-e", "/x/extension.ts"]


def built(*args: str, resume: Conversation | None = None) -> list[str]:
    line = arguments.command_line("/bin/pi", "/x/extension.ts", "id-1", resume, args)
    assert line[: len(HEAD)] == HEAD
    return line[len(HEAD) :]


@pytest.mark.parametrize(
    "name",
    [
        *("--mode", "--mode=json", "-p", "--print", "--session", "--session-id", "--session=x", "-c", "--continue"),
        *("-r", "--resume", "--fork", "--no-session", "--session-dir", "--export", "--help", "--version", "--"),
    ],
)
def test_what_loopsup_chooses_itself_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        create().check_args(("--model", "a/b", name, "x"), Path("/"))
    shown = name.split("=", maxsplit=1)[0] if name != "--" else name
    assert str(caught.value).startswith(f"the argument {shown} cannot be passed to pi: ")


@pytest.mark.parametrize(
    "args",
    [
        ("--exclude-tools", "bash,loop_control"),
        ("-xt", "loop*"),
        ("--exclude-tools", "*"),
        ("--tools", "-loop_control"),
        ("-t", "+codemode,-loop_control"),
    ],
)
def test_the_tool_cannot_be_taken_away(args: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="takes away loop_control, without which no iteration can end"):
        create().check_args(args, Path("/"))


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--model", "sonnet:high", "--offline", "-e", "./mine.ts", "--no-extensions"),
        ("--exclude-tools", "bash,mcp__*"),
        ("--append-system-prompt", "be brief"),
    ],
)
def test_the_rest_is_passed_on_as_it_is(args: tuple[str, ...]) -> None:
    create().check_args(args, Path("/"))
    assert built(*args) == ["--session-id", "id-1", *args]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--tools", "read,bash"), ["--tools", "read,bash,loop_control"]),
        (("-t", "read"), ["-t", "read,loop_control"]),
        (("--tools", "read,loop_control"), ["--tools", "read,loop_control"]),
        (("--tools", "*"), ["--tools", "*"]),
        (("--tools", "+codemode,-bash"), ["--tools", "+codemode,-bash"]),
        (("--no-tools",), ["--no-tools", "--tools", "loop_control"]),
        (("-nt", "--tools", "read"), ["-nt", "--tools", "read,loop_control"]),
    ],
)
def test_an_allow_list_gets_the_tool_added(args: tuple[str, ...], expected: list[str]) -> None:
    create().check_args(args, Path("/"))
    assert built(*args) == ["--session-id", "id-1", *expected]


def test_a_conversation_is_opened_by_its_file_or_where_there_is_none_by_its_id(tmp_path: Path) -> None:
    file = tmp_path / "x_abc.jsonl"
    assert built(resume=Conversation("abc", file, tmp_path)) == ["--session-id", "abc"]
    assert built(resume=Conversation("abc", None, tmp_path)) == ["--session-id", "abc"]
    file.touch()
    assert built(resume=Conversation("abc", file, tmp_path)) == ["--session", str(file)]


def test_a_missing_pi_is_one_sentence_with_a_way_on(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    assert create().missing(None, env) == (
        "the command `pi` is not on PATH; install it with `npm install -g @earendil-works/pi-coding-agent` "
        "(needs node 22.19 or newer), or name it as `command` in [agents.pi] of the configuration"
    )
    assert create().missing("/opt/no/pi", env) == (
        "the configured command '/opt/no/pi' of agent pi is not an executable file; "
        "correct `command` in [agents.pi] of the configuration"
    )
    (tmp_path / "pi").write_text("#!/bin/sh\n")
    assert create().missing(None, env) is not None  # not executable
    (tmp_path / "pi").chmod(0o755)
    assert create().missing(None, env) is None
    assert create().missing(str(tmp_path / "pi"), {}) is None


def test_the_extension_is_shipped_beside_the_code() -> None:
    from loopsup_pi.extension import SOURCE

    assert SOURCE.is_file()
