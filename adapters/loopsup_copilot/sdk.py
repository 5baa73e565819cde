"""The one place that touches `github-copilot-sdk`. Imported lazily: it takes two seconds of processor time.

Two of its private names are used, hence the pinned release: the child process (`_cli_process`; the SDK has no
public way to its pid and exit status) and the thread that reads from it (so that the last events are heard
before the loss is told).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loopsup_copilot.tool import DESCRIPTION, PARAMETERS, TOOL

# The SDK starts its child in the supervisor's own session, within reach of a terminal's Ctrl-C.
_OWN_SESSION = """
import os, sys
os.setsid()
try:
    os.execv(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""

# What a decision is answered with: accepted, and the words for the model.
Decide = Callable[[object, str | None], Awaitable[tuple[bool, str]]]


def load() -> None:
    """Import it (in a thread: the supervisor goes on answering meanwhile)."""
    import copilot
    import copilot.generated.rpc
    import copilot.session
    import copilot.tools  # noqa: F401 (loaded here, used elsewhere)


def client(path: str, cwd: str, env: Mapping[str, str]) -> Any:
    """A client that will run `path` on stdio, not started."""
    from copilot import CopilotClient, RuntimeConnection

    python = ("-I", "-S", "-c", _OWN_SESSION, path)
    connection = RuntimeConnection.for_stdio(path=sys.executable, args=python)
    return CopilotClient(connection=connection, working_directory=cwd, env=dict(env), log_level="warning")


def process(of: Any) -> subprocess.Popen[bytes] | None:
    """The child of a client, from the moment it was spawned."""
    found: subprocess.Popen[bytes] | None = getattr(of, "_cli_process", None)
    return found


def join_reader(of: Any, timeout_s: float) -> None:
    """Wait (in a thread) until all the child wrote has been read."""
    thread = getattr(getattr(of, "_client", None), "_read_thread", None)
    if thread is not None:
        thread.join(timeout_s)


def tool(decide: Decide) -> Any:
    """`loop_control`: ends the turn where the decision is accepted, else an error the model reads."""
    from copilot.tools import Tool, ToolInvocation, ToolResult

    async def handle(call: ToolInvocation) -> ToolResult:
        accepted, words = await decide(call.arguments, call.agent_id)
        return ToolResult(words, "success" if accepted else "failure", None if accepted else words)

    return Tool(
        TOOL,
        DESCRIPTION,
        handler=handle,
        parameters=dict(PARAMETERS),
        is_terminal=True,
        skip_permission=True,
        defer="never",
    )


def leave_pending(_request: Any, _invocation: Any) -> Any:
    """Permissions are answered by the id of their request, in time; the SDK's handler does not know it."""
    from copilot.session import PermissionNoResult

    return PermissionNoResult()


async def answer_permission(session: Any, request_id: str, allow: bool, words: str) -> None:
    """Once, for this call only; denied with words the model reads."""
    from copilot.generated.rpc import (
        PermissionDecisionApproveOnce,
        PermissionDecisionReject,
        PermissionDecisionRequest,
    )

    result = PermissionDecisionApproveOnce() if allow else PermissionDecisionReject(feedback=words or None)
    request = PermissionDecisionRequest(request_id=request_id, result=result)
    await session.rpc.permissions.handle_pending_permission_request(request)


async def leave_autopilot(session: Any) -> None:
    """A conversation adopted from a terminal may have been left in a mode that goes on by itself."""
    from copilot.generated.rpc import ModeSetRequest
    from copilot.generated.session_events import SessionMode

    await session.rpc.mode.set(ModeSetRequest(mode=SessionMode.INTERACTIVE))


def is_refusal(error: Exception) -> bool:
    """The server answered, and said no; anything else leaves open whether the request arrived."""
    from copilot.session import JsonRpcError  # type: ignore[attr-defined]  # it is there, though not declared

    return isinstance(error, JsonRpcError)
