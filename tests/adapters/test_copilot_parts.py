"""The parts of the Copilot adapter that need no Copilot: arguments, provider, executable, sessions, questions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from loopsup.errors import AgentUnableError, NotFoundError, UsageError
from loopsup.ports import Conversation, Permissions, ToolCall, ToolVerdict
from loopsup_copilot import arguments, executable, gate, provider, sessions
from loopsup_copilot.adapter import CopilotAdapter
from loopsup_copilot.questions import permission
from loopsup_copilot.tool import TOOL
from tests.support.copilot_env import CopilotWorld
from tests.support.recording import Recording

HERE = Path("/work/project")


# ---- arguments ------------------------------------------------------------------------------------


def test_options_of_the_command_become_options_of_the_session() -> None:
    args = "--model=gpt-x --effort high --agent helper --add-dir ../lib --add-dir=/opt --no-custom-instructions"
    given = arguments.parse((*args.split(), "--excluded-tools", "grep, glob"), HERE)
    assert given.options == {
        "model": "gpt-x",
        "reasoning_effort": "high",
        "agent": "helper",
        "additional_directories": ["/work/project/../lib", "/opt"],
        "skip_custom_instructions": True,
        "excluded_tools": ["grep", "glob"],
    }
    assert given.model == "gpt-x"
    assert arguments.parse((), HERE).model is None


def test_a_list_of_tools_keeps_the_way_to_report() -> None:
    assert arguments.parse(("--available-tools", "view"), HERE).options == {"available_tools": ["view", TOOL]}
    with pytest.raises(UsageError, match="without which no iteration can end"):
        arguments.parse(("--excluded-tools", f"view,{TOOL}"), HERE)


@pytest.mark.parametrize("name", sorted(arguments.REFUSED))
def test_what_loopsup_decides_itself_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be passed to copilot: .+"):
        CopilotAdapter().check_args((name,), HERE)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--nonsense",), "these can: --model"),
        (("stray words",), "these can: --model"),
        (("--model",), "needs a value"),
        (("--model=",), "needs a value"),
        (("--no-custom-instructions=yes",), "these can"),
    ],
)
def test_an_argument_that_would_do_nothing_is_refused(args: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        arguments.parse(args, HERE)


# ---- the provider ---------------------------------------------------------------------------------


def test_the_variables_of_a_provider_are_all_passed_on() -> None:
    names = ("TYPE", "API_KEY", "API_KEY_COMMAND", "BEARER_TOKEN", "WIRE_API", "TRANSPORT", "MODEL_ID", "WIRE_MODEL")
    env = {f"COPILOT_PROVIDER_{name}": name.lower() for name in names}
    env |= {"COPILOT_PROVIDER_BASE_URL": "http://x/v1", "COPILOT_PROVIDER_AZURE_API_VERSION": "2026-01-01"}
    env |= {"COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000", "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "50"}
    env |= {"COPILOT_PROVIDER_HEADERS": "X-A: 1\nX-B: 2:3\\nX-C:4\nnonsense"}
    assert provider.provider(env) == {
        "type": "type",
        "base_url": "http://x/v1",
        "api_key": "api_key",
        "api_key_command": "api_key_command",
        "bearer_token": "bearer_token",
        "wire_api": "wire_api",
        "transport": "transport",
        "model_id": "model_id",
        "wire_model": "wire_model",
        "max_prompt_tokens": 1000,
        "max_output_tokens": 50,
        "azure": {"api_version": "2026-01-01"},
        "headers": {"X-A": "1", "X-B": "2:3", "X-C": "4"},
    }


def test_without_a_base_url_there_is_no_provider() -> None:
    assert provider.provider({"COPILOT_PROVIDER_API_KEY": "k"}) is None


def test_a_token_limit_that_is_no_number_is_told() -> None:
    env = {"COPILOT_PROVIDER_BASE_URL": "http://x", "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "many"}
    with pytest.raises(AgentUnableError, match="COPILOT_PROVIDER_MAX_PROMPT_TOKENS must be a whole number"):
        provider.provider(env)


@pytest.mark.parametrize(
    ("env", "model"), [({}, None), ({"COPILOT_MODEL": "a"}, "a"), ({"COPILOT_PROVIDER_MODEL_ID": "b"}, "b")]
)
def test_the_model_of_the_environment(env: dict[str, str], model: str | None) -> None:
    assert provider.model(env) == model


# ---- the executable -------------------------------------------------------------------------------


def binary(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_command_then_the_variable_then_the_path(tmp_path: Path) -> None:
    on_path, named, configured = (binary(tmp_path / name / "copilot") for name in ("bin", "named", "conf"))
    env = {"PATH": str(on_path.parent)}
    assert executable.find(None, env) == str(on_path)
    assert executable.find(None, {**env, "COPILOT_CLI_PATH": str(named)}) == str(named)
    assert executable.find(str(configured), {**env, "COPILOT_CLI_PATH": str(named)}) == str(configured)


@pytest.mark.parametrize("nested", [False, True])
def test_npms_loader_is_passed_by(tmp_path: Path, nested: bool) -> None:
    github = tmp_path / "lib" / "node_modules" / "@github"
    loader = binary(github / "copilot" / "npm-loader.js")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "copilot").symlink_to(loader)
    env = {"PATH": str(tmp_path / "bin")}
    assert executable.find(None, env) == str(tmp_path / "bin" / "copilot")
    root = github / "copilot" / "node_modules" / "@github" if nested else github
    real = binary(root / "copilot-linux-x64" / "copilot")
    assert executable.find(None, env) == str(real)


@pytest.mark.parametrize(
    ("command", "env", "words"),
    [
        (None, {}, "`copilot` is not on PATH; install it with `npm install -g @github/copilot`"),
        (None, {"COPILOT_CLI_PATH": "/nowhere/copilot"}, "COPILOT_CLI_PATH names '/nowhere/copilot'"),
        ("/nowhere/copilot", {}, "correct `command` in [agents.copilot]"),
    ],
)
def test_a_missing_binary_is_told_with_a_way_on(command: str | None, env: dict[str, str], words: str) -> None:
    told = CopilotAdapter().missing(command, {"PATH": "/nonexistent", **env})
    assert told is not None
    assert words in told


def test_a_missing_sdk_is_told_with_a_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(executable, "version", nothing)
    told = executable.missing(str(binary(tmp_path / "copilot")), {})
    assert told is not None
    assert "pip install 'loopsup[copilot]'" in told


def test_offline_without_a_provider_is_told_before_anything_starts(tmp_path: Path) -> None:
    command = str(binary(tmp_path / "copilot"))
    told = CopilotAdapter().missing(command, {"COPILOT_OFFLINE": "true"})
    assert told is not None
    assert "set COPILOT_PROVIDER_BASE_URL" in told
    assert CopilotAdapter().missing(command, {"COPILOT_OFFLINE": "false"}) is None
    env = {"COPILOT_OFFLINE": "1", "COPILOT_PROVIDER_BASE_URL": "http://x"}
    assert CopilotAdapter().missing(command, env) is None


def test_looking_at_the_agents_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from loopsup_copilot import create; a = create(); a.missing(None, {}); a.capabilities; "
        "print([m for m in ('copilot', 'pydantic', 'asyncio') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# ---- sessions -------------------------------------------------------------------------------------


def session(root: Path, identity: str, **data: Any) -> Path:
    """A session directory as Copilot leaves it."""
    directory = root / "session-state" / identity
    directory.mkdir(parents=True)
    start = {"sessionId": identity, "context": {"cwd": str(HERE)}, **data}
    (directory / "events.jsonl").write_text(json.dumps({"type": "session.start", "data": start}) + "\n{}\n")
    return directory


def test_a_conversation_is_found_by_id_prefix_and_path(tmp_path: Path) -> None:
    first, second = session(tmp_path, "aaaa-1"), session(tmp_path, "aabb-2")
    env = {"COPILOT_HOME": str(tmp_path)}
    found = Conversation("aaaa-1", first / "events.jsonl", HERE)
    for ref in ("aaaa-1", "aaa", str(first), str(first / "events.jsonl")):
        assert sessions.locate(ref, HERE, env) == found
    assert sessions.locate("aab", HERE, env) == Conversation("aabb-2", second / "events.jsonl", HERE)
    with pytest.raises(UsageError, match="fits 2 Copilot sessions"):
        sessions.locate("aa", HERE, env)


@pytest.mark.parametrize("ref", ["zzzz", "./nowhere"])
def test_a_conversation_that_is_not_there(tmp_path: Path, ref: str) -> None:
    with pytest.raises(NotFoundError):
        sessions.locate(ref, tmp_path, {"HOME": str(tmp_path)})


def test_what_is_no_session_directory_is_told(tmp_path: Path) -> None:
    env = {"COPILOT_HOME": str(tmp_path)}
    with pytest.raises(UsageError, match="names no Copilot session"):
        sessions.locate("", HERE, env)
    copy = session(tmp_path, "aaaa-1")
    copy.rename(tmp_path / "session-state" / "bbbb-2")
    with pytest.raises(UsageError, match="is not a Copilot session directory"):
        sessions.locate(str(tmp_path / "session-state" / "bbbb-2"), HERE, env)


def test_a_session_in_which_nothing_was_said_is_begun_and_not_resumed(tmp_path: Path) -> None:
    spoken = session(tmp_path, "aaaa-1")
    assert sessions.was_spoken_in(Conversation("aaaa-1", spoken / "events.jsonl", HERE))
    assert not sessions.was_spoken_in(Conversation("bbbb-2", tmp_path / "bbbb-2" / "events.jsonl", HERE))
    assert not sessions.was_spoken_in(Conversation("cccc-3", None, HERE))


def test_only_a_living_copilot_holds_a_session(tmp_path: Path) -> None:
    (tmp_path / f"inuse.{os.getpid()}.lock").touch()  # stale: the number is somebody else's by now
    (tmp_path / "inuse.x.lock").touch()
    code = "print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, "copilot"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        holder.stdout.readline()  # before that the system may not know its command line yet
        (tmp_path / f"inuse.{holder.pid}.lock").touch()
        assert holder.pid in sessions.holders(tmp_path)
    finally:
        holder.communicate()
    assert holder.pid not in sessions.holders(tmp_path)


# ---- permissions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "denied"),
    [
        (Permissions(), set()),
        (Permissions(mode="allow", deny=("bash",)), {"bash"}),
        (Permissions(mode="deny", allow=("view",)), {"bash", "edit"}),
        (Permissions(mode="deny", allow=("view",), allow_all=True), set()),
        (Permissions(mode="deny", deny=("view",), allow_all=True), {"view"}),
    ],
)
def test_the_gate_before_tools(policy: Permissions, denied: set[str]) -> None:
    found = gate.Gate(policy, None)
    names = ("bash", "edit", "view", TOOL)
    assert {name for name in names if asyncio.run(found({"toolName": name}, {})) is not None} == denied


def test_without_rules_and_denials_no_tool_waits(tmp_path: Path) -> None:
    world = CopilotWorld(tmp_path, "http://127.0.0.1:1")
    assert gate.hooks(world.launch([]), Recording()) == {}
    assert set(gate.hooks(world.launch([], hold_tools=True), Recording())) == {"on_pre_tool_use"}


def test_a_held_tool_runs_only_with_a_verdict_in_time() -> None:
    class Judge(Recording):
        async def tool_call(self, call: ToolCall) -> ToolVerdict:
            await super().tool_call(call)
            if call.arguments == "late":
                await asyncio.Event().wait()
            return ToolVerdict(call.arguments == "good", "a rule")

    async def scenario() -> tuple[list[Any], list[ToolCall]]:
        judge = Judge()
        found = gate.Gate(Permissions(), judge)
        answers = [await found({"toolName": "bash", "toolArgs": given}, {}) for given in ("good", "bad", "late")]
        await found({"toolName": TOOL, "toolArgs": "bad"}, {})
        return answers, judge.all("tool_call")

    answers, calls = asyncio.run(scenario())
    denied = {"permissionDecision": "deny"}
    assert answers == [
        None,
        {**denied, "permissionDecisionReason": "a rule"},
        {**denied, "permissionDecisionReason": gate.LATE.format(250)},
    ]
    assert [call.arguments for call in calls] == ["good", "bad", "late"]


@pytest.mark.parametrize(
    ("request_", "tool", "text"),
    [
        ({"kind": "shell", "fullCommandText": "rm x", "intention": "Tidy"}, "bash", "shell: rm x (Tidy)"),
        ({"kind": "read", "path": "/etc/x", "intention": "/etc/x"}, "view", "read: /etc/x"),
        ({"kind": "url", "url": "http://x"}, "web_fetch", "url: http://x"),
        (
            {"kind": "mcp", "serverName": "s", "toolName": "t", "args": {"a": 1}},
            "s-t",
            "mcp: s: t {'a': 1}",
        ),
        ({"kind": "something-new"}, "something-new", "something-new"),
    ],
)
def test_a_permission_request_as_a_question(request_: dict[str, Any], tool: str, text: str) -> None:
    known = tool if request_["kind"] in ("shell", "read", "url") else None
    asked = permission({"requestId": "r1", "permissionRequest": request_}, known)
    assert (asked.id, asked.kind, asked.tool, asked.text) == ("r1", "permission", tool, text)


def test_a_question_about_a_file_shows_the_change() -> None:
    data = {"kind": "write", "fileName": "a.py", "intention": "Edit", "diff": "-1\n+2\n"}
    assert permission({"requestId": "r", "permissionRequest": data}, "edit").text == "write: a.py (Edit) \n-1\n+2"
