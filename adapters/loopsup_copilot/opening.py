"""Opening a session: what Copilot is told at its start, new or resumed, and what stands against it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopsup.ports import AgentUnableError, Conversation, Launch
from loopsup_copilot import provider, sdk, sessions
from loopsup_copilot.arguments import Given

RELEASE_S = 5.0  # a server whose supervisor was killed ends by itself within 2 s
POLL_S = 0.1  # nobody tells when another process lets go of a session


def check(launch: Launch, given: Given) -> None:
    """AgentUnableError for an environment in which no model can be asked."""
    if (reason := provider.offline(launch.env)) is not None:
        raise AgentUnableError(reason)
    if provider.provider(launch.env) is not None and model(launch, given.options) is None:
        raise AgentUnableError(
            f"{provider.BASE_URL} is set and no model is named; set COPILOT_MODEL, or give `-- --model NAME`"
        )


def model(launch: Launch, given: Mapping[str, Any]) -> str | None:
    return given.get("model") or provider.model(launch.env)


def options(launch: Launch, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `create_session` and `resume_session` have in common."""
    out: dict[str, Any] = {
        **given,
        "client_name": "loopsup",
        "working_directory": str(launch.cwd),
        "streaming": True,
        "include_sub_agent_streaming_events": False,
        "autopilot": {"continuation_enabled": False},
        "manage_schedule_enabled": False,
    }
    if (named := model(launch, given)) is not None:
        out["model"] = named
    if (own := provider.provider(launch.env)) is not None:
        out["provider"] = own
    return out


async def open_session(client: Any, launch: Launch, given: dict[str, Any]) -> tuple[Any, Conversation]:
    """The SDK's session and the conversation it is. AgentUnableError."""
    if "provider" not in given:
        await _require_login(client)
    resume = launch.resume
    try:
        if resume is not None and sessions.was_spoken_in(resume):
            assert resume.file is not None
            await _wait_for_release(resume.file.parent)
            session = await client.resume_session(resume.id, **given)
            await sdk.leave_autopilot(session)
        else:
            identity = launch.session_id if resume is None else resume.id
            session = await client.create_session(session_id=identity, **given)
    except AgentUnableError:
        raise
    except Exception as error:
        raise AgentUnableError(f"copilot could not open the session: {error}") from error
    directory = Path(session.workspace_path or sessions.state_dir(launch.cwd, launch.env) / session.session_id)
    _make(directory)
    return session, resume or Conversation(session.session_id, directory / sessions.EVENTS, launch.cwd)


def _make(directory: Path) -> None:
    """Copilot makes it with the first message only; the loop's folder goes into it before that."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _require_login(client: Any) -> None:
    status = await client.get_auth_status()
    if not status.isAuthenticated:
        raise AgentUnableError(
            "copilot is not logged in to GitHub; run `copilot` and there `/login`, or name a model provider of "
            f"your own in {provider.BASE_URL} (see `copilot help providers`)"
        )


async def _wait_for_release(directory: Path) -> None:
    """Copilot lets two processes drive one session, and their histories diverge."""
    try:
        async with asyncio.timeout(RELEASE_S):
            while sessions.holders(directory):  # noqa: ASYNC110 (no event tells it)
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        pids = ", ".join(map(str, sessions.holders(directory)))
        raise AgentUnableError(
            f"the conversation {directory.name} is open in another copilot (process {pids}); end that one first"
        ) from None
