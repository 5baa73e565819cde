"""The real Copilot's life: start, resume, adoption, crash, close, and what stands against it."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopsup.errors import AgentUnableError
from loopsup.ports import Conversation, Permissions, Refused
from loopsup.shell.leftover import alive
from loopsup.wire import events as ev
from loopsup_copilot import sessions
from loopsup_copilot.server import MARK
from tests.support import toolchain
from tests.support.agent_env import said, stamped
from tests.support.copilot_env import SESSION_ID, CopilotWorld, Free, drive, heard, running, shell, tool_texts
from tests.support.model_server import ModelServer, Reply, decision
from tests.support.recording import Recording

pytestmark = [pytest.mark.copilot, pytest.mark.slow]


async def until(found: Any) -> Any:
    """Poll; the deadline is the scenario's."""
    while not (got := found()):
        await asyncio.sleep(0.05)
    return got


def name(process: psutil.Process) -> str:
    """Empty where it has ended just now, as Copilot's small helpers do."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def test_a_session_has_our_id_and_its_directory(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            directory = world.root / "copilot" / "session-state" / SESSION_ID
            assert run.conversation == Conversation(SESSION_ID, directory / "events.jsonl", world.work)
            await run.round(stamped())
            await until((directory / "events.jsonl").is_file)
            assert sessions.holders(directory) == [run.agent.pid]

    drive(tmp_path, [Reply("Yes.")], scenario)


def test_a_session_is_resumed_after_close_and_after_a_crash_with_its_loop_in_it(tmp_path: Path) -> None:
    """The folder of the loop lies in the session's directory from before the first word: Copilot's own list, its
    newest session and its resume do not see it."""

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            conversation = run.conversation
            assert conversation.file is not None
            folder = conversation.file.with_suffix(".loopsup")
            folder.mkdir(mode=0o700)
            (folder / "events.jsonl").write_text('{"v":1,"seq":1,"type":"session.start","data":{}}\n')
            await run.round(stamped("first"))
        async with running(world, resume=conversation) as again:
            assert again.conversation == conversation
            await again.round(stamped("second"))
            client = again.agent._server.client
            assert [one.session_id for one in await client.list_sessions()] == [SESSION_ID]
            assert await client.get_last_session_id() == SESSION_ID
            assert again.agent.pid is not None
            os.kill(again.agent.pid, signal.SIGKILL)
            await again.told.until("lost")
        async with running(world, resume=conversation) as last:
            await last.round(stamped("third"))
        assert heard(server.requests[-1]) == ["first", "second", "third"]
        assert (folder / "events.jsonl").exists()

    drive(tmp_path, [Reply("One."), Reply("Two."), Reply("Three.")], scenario)


def test_a_session_without_a_word_is_begun_again_under_its_id(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            conversation = run.conversation
        async with running(world, resume=conversation) as again:
            assert again.conversation == conversation
            await again.round(stamped())

    drive(tmp_path, [Reply("Yes.")], scenario)


def test_a_conversation_of_a_person_is_adopted(tmp_path: Path) -> None:
    """Made by `copilot -p`, found by a prefix of its id; the provider is given anew; autopilot is left."""
    identity = str(uuid.uuid4())

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        argv = [str(toolchain.copilot()), "-p", "made by hand", "--session-id", identity, "--mode", "autopilot"]
        argv += ["--allow-all", "--max-autopilot-continues", "0"]
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=world.work, env=world.env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        await process.wait()
        found = sessions.locate(identity[:13], world.work, world.env)
        assert found == Conversation(
            identity, world.root / "copilot" / "session-state" / identity / "events.jsonl", world.work
        )
        before = len(server.requests)
        async with running(world, resume=found) as run:
            await run.round(stamped("and now the loop"))
            assert run.told.all("settled") == [False]
            assert len(server.requests) == before + 1
            assert heard(server.requests[-1])[0].endswith("made by hand")
            assert heard(server.requests[-1])[-1] == "and now the loop"

    drive(tmp_path, [Reply("By hand."), Reply("By the loop.")], scenario)


def test_a_conversation_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as owner:
            await owner.round(stamped())
            with pytest.raises(AgentUnableError, match="is open in another copilot"):
                async with running(world, resume=owner.conversation):
                    pass
            await owner.round(said("still mine"))

    drive(tmp_path, [Reply("Yes."), Reply("Yes.")], scenario)


def test_a_killed_copilot_leaves_no_shell_behind_and_is_told_last(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free()
        async with running(world, told) as run:
            told.agent = run.agent
            await run.agent.prompt(stamped())
            pid = run.agent.pid
            assert pid is not None
            shells = await until(lambda: [one for one in psutil.Process(pid).children() if "sleep" in name(one)])
            os.kill(pid, signal.SIGKILL)
            assert "SIGKILL" in await told.until("lost")
            assert told.calls[-1][0] == "lost"
            assert not any(map(alive, shells))
            assert told.events(ev.TURN_END)[-1]["stopReason"] == "aborted"
            assert told.all("settled") == []
            assert isinstance(await run.agent.prompt(said("hello?")), Refused)

    drive(tmp_path, [Reply(tools=[shell("sleep 77")])], scenario)


def test_close_ends_shells_of_all_kinds(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told = Free()
        async with running(world, told) as run:
            told.agent = run.agent
            await run.agent.prompt(stamped())
            token = psutil.Process(run.agent.pid).environ()[MARK]
            await until(lambda: len(marked(token)) >= 3)
        assert marked(token) == []
        assert told.all("lost") == []

    drive(tmp_path, [Reply(tools=[shell("sleep 77", mode="async"), shell("sleep 78")])], scenario)


def marked(token: str) -> list[psutil.Process]:
    """Everything one server has started that is still alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_permissions_are_asked_allowed_and_denied_with_words_for_the_model(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            first = await run.told.until("ask")
            assert (first.kind, first.tool) == ("permission", "bash")
            assert first.text == "shell: touch one (a command)"
            await run.agent.answer(first.id, True, "")
            second = await run.told.until("ask", 2)
            await run.agent.answer(second.id, False, "No person answered within 5m.")
            await run.agent.answer(second.id, True, "")  # too late: it is answered
            await run.told.until("settled")
            assert (world.work / "one").exists()
            assert not (world.work / "two").exists()
            assert "No person answered within 5m." in tool_texts(server.requests[-1])[-1]
            assert run.told.all("ask_over") == []

    script = [Reply(tools=[shell("touch one")]), Reply(tools=[shell("touch two")]), Reply(tools=[decision("block")])]
    drive(tmp_path, script, scenario)


def test_a_dialog_is_asked_and_answered(tmp_path: Path) -> None:
    ask = ("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            first = await run.told.until("ask")
            assert (first.kind, first.text) == ("dialog", "Which colour? [red | blue] (allow picks 'red')")
            await run.agent.answer(first.id, True, "")
            second = await run.told.until("ask", 2)
            await run.agent.answer(second.id, False, "Nobody is there.")
            await run.told.until("settled")
            texts = tool_texts(server.requests[-1])
            assert "red" in texts[0]
            assert "Nobody is there." in texts[1]

    drive(tmp_path, [Reply(tools=[ask]), Reply(tools=[ask]), Reply("So be it.")], scenario)


def test_denied_tools_are_stopped_where_copilot_would_not_ask(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world, permissions=Permissions(mode="allow", deny=("sql",))) as run:
            await run.round(stamped())
            assert "configuration denies the tool sql" in tool_texts(server.requests[-1])[0]
            assert run.told.all("ask") == []

    sql = ("sql", {"query": "select 1", "description": "look"})
    drive(tmp_path, [Reply(tools=[sql]), Reply(tools=[decision("continue")])], scenario)


@pytest.mark.parametrize(
    ("without", "args", "words"),
    [
        (["COPILOT_MODEL"], (), "no model is named; set COPILOT_MODEL"),
        (["COPILOT_PROVIDER_BASE_URL"], (), "COPILOT_OFFLINE is set and there is no model provider"),
        (["COPILOT_PROVIDER_BASE_URL", "COPILOT_OFFLINE"], (), "copilot is not logged in to GitHub"),
    ],
)
def test_what_cannot_work_is_told_at_the_start(
    tmp_path: Path, without: list[str], args: tuple[str, ...], words: str
) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        for name in without:
            del world.env[name]
        with pytest.raises(AgentUnableError, match=words):
            async with running(world, args=args):
                pass

    drive(tmp_path, [], scenario)


def test_the_model_may_come_with_the_arguments(tmp_path: Path) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world, args=("--model", "other-1", "--excluded-tools", "grep")) as run:
            await run.round(stamped())
            assert server.requests[0]["model"] == "other-1"
            assert "grep" not in [tool["function"]["name"] for tool in server.requests[0]["tools"]]

    drive(tmp_path, [Reply("Yes.")], scenario)


@pytest.mark.parametrize(
    ("body", "start_s", "words"),
    [
        ("#!/bin/sh\necho 'out of order' >&2\nexit 3\n", 90, "exit status 3.*out of order"),
        ("#!/nonexistent/interpreter\n", 90, "No such file"),
        ("#!/bin/sh\nsleep 60\n", 2, "did not get ready within 2 s"),
    ],
    ids=["it fails", "it cannot be run", "it is silent"],
)
def test_a_copilot_that_does_not_come_up(tmp_path: Path, body: str, start_s: int, words: str) -> None:
    from loopsup_copilot.agent import CopilotAgent

    broken = tmp_path / "broken"
    broken.write_text(body)
    broken.chmod(0o755)

    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        told, log = Recording(), list[str]()
        agent = CopilotAgent(world.launch(log, command=str(broken)), told, start_s=start_s)
        with pytest.raises(AgentUnableError, match=f"(?s){words}"):
            await agent.start()
        await agent.close()
        assert agent.pid is None
        assert told.calls == []

    drive(tmp_path, [], scenario)


def test_nothing_of_copilot_reaches_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario(world: CopilotWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.round(stamped())
            assert run.agent.pid is not None
            os.kill(run.agent.pid, signal.SIGKILL)
            await run.told.until("lost")

    drive(tmp_path, [Reply("Yes.")], scenario)
    assert capfd.readouterr() == ("", "")
