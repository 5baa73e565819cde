"""The MCP server: by hand, line by line, and with the official client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loopsup import mcp_server
from loopsup.core.decisions import KEYS
from loopsup.core.model import Verb
from loopsup.errors import RefusedError
from loopsup.wire.control import Request, Response
from tests.cli.support import HOLD, FakeSupervisor

SERVER = (sys.executable, "-I", "-S", mcp_server.__file__)
COMPLETE = {"decision": "complete", "summary": "green", "evidence": "make test: 12 passed"}
TOKEN = "t0ken"
NOBODY = "no loop of loopsup runs here (LOOPSUP_SOCKET and LOOPSUP_TOKEN are not set)"


def judge(request: Request) -> Response:
    """A supervisor's verdict."""
    if request.args["token"] != TOKEN:
        return Response(error=RefusedError("the token is stale"))
    if request.args["arguments"] != COMPLETE:
        return Response(error=RefusedError("evidence is missing; call it again"))
    return Response(message="accepted; end your turn")


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[FakeSupervisor]:
    fake = FakeSupervisor(tmp_path / "s", {"hello": Response(), "decide": judge})
    yield fake
    fake.close()


def env_for(fake: FakeSupervisor, token: str = TOKEN) -> dict[str, str]:
    return {"LOOPSUP_SOCKET": str(fake.path), "LOOPSUP_TOKEN": token}


def message(method: str, identity: object = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}).encode()


def call(arguments: object, env: Mapping[str, str]) -> tuple[bool, str]:
    """Whether the tool's result is an error, and its text."""
    answer = mcp_server.answer_line(message("tools/call", name="loop_control", arguments=arguments), env)
    assert answer is not None
    (content,) = answer["result"]["content"]
    assert content["type"] == "text"
    return answer["result"]["isError"], content["text"]


def test_the_tool_is_the_one_the_core_understands() -> None:
    schema = mcp_server.TOOL["inputSchema"]
    assert tuple(schema["properties"]) == KEYS
    assert schema["properties"]["decision"]["enum"] == [verb.value for verb in Verb]
    assert schema["additionalProperties"] is False
    assert mcp_server.TOOL["annotations"]["readOnlyHint"] is True
    assert mcp_server.TOOL["_meta"] == {"anthropic/alwaysLoad": True}


def test_a_session_by_hand(supervisor: FakeSupervisor) -> None:
    env = env_for(supervisor)
    first = mcp_server.answer_line(message("initialize", protocolVersion="2025-11-25"), env)
    assert first == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "loopsup", "version": "1"},
        },
    }
    listed = mcp_server.answer_line(message("tools/list", identity="a"), env)
    assert listed == {"jsonrpc": "2.0", "id": "a", "result": {"tools": [mcp_server.TOOL]}}
    assert call({"decision": "complete"}, env) == (True, "evidence is missing; call it again")
    assert call(COMPLETE, env) == (False, "accepted; end your turn")
    assert call(COMPLETE, env_for(supervisor, "old")) == (True, "the token is stale")
    assert supervisor.requests == [
        Request("hello", {"stage": "listed", "token": TOKEN}),
        Request("decide", {"arguments": {"decision": "complete"}, "token": TOKEN}),
        Request("decide", {"arguments": COMPLETE, "token": TOKEN}),
        Request("decide", {"arguments": COMPLETE, "token": "old"}),
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{oops\n", -32700),
        (b"[1]\n", -32600),
        (message("resources/list"), -32601),
        (message("tools/call", name="rm"), -32602),
    ],
)
def test_what_it_does_not_understand_is_an_error_and_no_end(line: bytes, code: int) -> None:
    answer = mcp_server.answer_line(line, {})
    assert answer is not None
    assert answer["error"]["code"] == code


@pytest.mark.parametrize("line", [b"\n", b'{"method":"notifications/initialized"}\n', b'{"id":4,"result":{}}\n'])
def test_notifications_and_responses_get_no_answer(line: bytes) -> None:
    assert mcp_server.answer_line(line, {}) is None


def test_a_call_that_reaches_nobody_says_that_nothing_was_recorded(
    tmp_path: Path, supervisor: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"LOOPSUP_SOCKET": str(tmp_path / "gone"), "LOOPSUP_TOKEN": TOKEN}
    assert call(COMPLETE, {}) == (True, f"The decision was not recorded: {NOBODY}.")
    assert call(COMPLETE, gone) == (
        True,
        "The decision was not recorded: the supervisor does not answer ([Errno 2] No such file or directory).",
    )
    supervisor.answers["decide"] = HOLD
    silent = "The decision was not recorded: the supervisor did not answer within 0.05 s."
    with monkeypatch.context() as hurry:
        hurry.setattr(mcp_server, "VERDICT_TIMEOUT_S", 0.05)
        assert call(COMPLETE, env_for(supervisor)) == (True, silent)
    supervisor.answers["decide"] = b"what?\n"
    failed, text = call(COMPLETE, env_for(supervisor))
    assert (failed, text.startswith("The decision was not recorded: the supervisor does not answer")) == (True, True)


def test_it_loads_nothing_but_a_little_of_the_standard_library() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, mcp_server.__file__], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.split(".")[0] in ("loopsup", "asyncio", "typer", "typing_extensions")}


@pytest.mark.slow
def test_the_process_ends_with_its_input_and_says_hello_first(supervisor: FakeSupervisor) -> None:
    done = subprocess.run(
        SERVER,
        input=message("tools/list") + b"\n",
        env={**os.environ, **env_for(supervisor)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["tools"] == [mcp_server.TOOL]
    assert done.stderr == b""
    assert [request.args["stage"] for request in supervisor.requests] == ["started", "listed"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [SERVER, (sys.executable, "-P", "-m", "loopsup", "mcp")], ids=["file", "verb"])
def test_the_official_client_sees_the_tool_and_the_verdicts(
    supervisor: FakeSupervisor, command: tuple[str, ...]
) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk() -> list[Any]:
        how = StdioServerParameters(command=command[0], args=[*command[1:]], env=env_for(supervisor))
        async with stdio_client(how) as (read, write), ClientSession(read, write) as session:
            started = await session.initialize()
            (tool,) = (await session.list_tools()).tools
            bad = await session.call_tool("loop_control", {"decision": "complete"})
            good = await session.call_tool("loop_control", COMPLETE)
            await session.send_ping()
            dump = [item.model_dump(by_alias=True, exclude_none=True) for item in (tool, bad, good)]
            return [started.model_dump(by_alias=True)["serverInfo"]["name"], *dump]

    name, tool, bad, good = asyncio.run(asyncio.wait_for(talk(), 100))
    assert name == "loopsup"
    assert tool == mcp_server.TOOL
    assert (bad["isError"], bad["content"][0]["text"]) == (True, "evidence is missing; call it again")
    assert (good["isError"], good["content"][0]["text"]) == (False, "accepted; end your turn")
