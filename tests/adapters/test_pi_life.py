"""The real Pi's life: start and its failures, death, resume, markers, branches, dialogs, the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from loopsup.ports import (
    AbortReason,
    Accepted,
    AgentUnableError,
    Conversation,
    Marker,
    NotFoundError,
    Question,
    Refused,
    Unknown,
)
from loopsup_pi import create
from tests.support.agent_env import said, stamped
from tests.support.model_server import ModelServer, Reply, bash, decision, user_texts
from tests.support.pi_env import PiWorld, drive, running
from tests.support.recording import Recording

pytestmark = [pytest.mark.pi, pytest.mark.slow]


def test_a_start_failure_is_told_in_pis_own_words(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        told = Recording()
        with pytest.raises(AgentUnableError, match=r"pi ended at its start: exit status 1; .*nowhere\.ts"):
            async with running(world, told, args=("-e", "/nowhere.ts")):
                pass
        assert told.calls == []
        assert list((tmp_path / "run").iterdir()) == []

    drive(tmp_path, [], scenario)


def test_an_executable_that_is_none_is_told(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        script = tmp_path / "pi"
        script.write_text("#!/nonexistent/interpreter\n")
        script.chmod(0o755)
        with pytest.raises(AgentUnableError, match=r"pi could not be started \(.*\): No such file or directory"):
            async with running(world, command=str(script)):
                pass

    drive(tmp_path, [], scenario)


def test_something_that_is_not_pi_is_told(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        with pytest.raises(AgentUnableError, match="pi ended at its start: exit status 1"):
            async with running(world, command="/bin/false"):
                pass

    drive(tmp_path, [], scenario)


def test_the_tool_is_there_under_an_allow_list_of_tools(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        for number, args in enumerate([("--tools", "read,bash"), ("--no-tools",), ("-ne", "-nbt")]):
            async with running(world, args=args, session_id=f"s{number}") as run:
                assert await run.agent.prompt(stamped()) == Accepted()
                await run.told.until("settled")
        names = [sorted(tool["function"]["name"] for tool in body["tools"]) for body in server.requests]
        assert names == [["bash", "loop_control", "read"], ["loop_control"], ["loop_control"]]

    drive(tmp_path, [Reply(tools=[decision("complete")])] * 3, scenario)


def test_an_extension_that_switches_the_tools_does_not_take_it_away(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        before = (tmp_path / "agent" / "settings.json").read_bytes()
        world.extension("plan", 'pi.on("agent_settled", () => pi.setActiveTools(["read"]));')
        async with running(world) as run:
            for number in (1, 2):
                await run.agent.prompt(stamped("look", number))
                await run.told.until("settled", number)
            assert len(run.told.all("decide")) == 2
        assert (tmp_path / "agent" / "settings.json").read_bytes() == before

    drive(tmp_path, [Reply(tools=[decision("continue")])] * 2, scenario, defaultTools=["-loop_control"])


@pytest.mark.parametrize("when", ["idle", "working"])
def test_a_killed_pi_is_lost_with_its_signal(tmp_path: Path, when: str) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            if when == "working":
                await run.agent.prompt(stamped())
                await asyncio.to_thread(server.wait_for_requests, 1)
            assert run.agent.pid is not None
            os.kill(run.agent.pid, signal.SIGKILL)
            assert (await run.told.until("lost")).startswith("signal 9 (SIGKILL)")
            assert run.agent.pid is None
            assert isinstance(await run.agent.prompt(stamped()), Refused)
        assert run.told.calls[-1][0] == "lost"
        assert run.told.all("settled") == []

    drive(tmp_path, [Reply(hang="headers")], scenario)


def test_a_death_before_the_answer_leaves_the_hand_over_unknown(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("die", 'pi.on("input", async () => { process.exit(7); });')
        async with running(world) as run:
            assert await run.agent.prompt(stamped()) == Unknown("pi ended: exit status 7")
            assert (await run.told.until("lost")).startswith("exit status 7")

    drive(tmp_path, [], scenario)


def test_an_exit_comes_with_the_last_words(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension(
            "crash",
            """const boom = () => { throw new Error("BOOM-42"); };
            pi.registerCommand("crash", { handler: async () => void setTimeout(boom, 1) });""",
        )
        async with running(world) as run:
            await run.agent.prompt(said("/crash"))
            reason = await run.told.until("lost")
        assert reason.startswith("exit status 1; ")
        assert "BOOM-42" in reason

    drive(tmp_path, [], scenario)


def test_close_ends_the_turn_the_tool_and_the_process(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until_event("tool.execution_start")
            pid = run.agent.pid
            assert pid is not None
            async with asyncio.timeout(60):
                while not (family := psutil.Process(pid).children(recursive=True)):
                    await asyncio.sleep(0.02)
        assert not psutil.pid_exists(pid)
        assert psutil.wait_procs(family, timeout=60)[1] == []
        assert run.told.events("abort") == [{"reason": "shutdown"}]
        assert run.told.all("settled") == [True]
        assert run.told.all("lost") == []
        assert list((tmp_path / "run").iterdir()) == []

    drive(tmp_path, [Reply(tools=[bash("sleep 300")])], scenario)


def test_a_conversation_goes_on_in_a_new_process(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped("first"))
            await run.told.until("settled")
        file = run.conversation.file
        assert run.conversation == Conversation("loop-1", file, world.work)
        assert file is not None
        found = [create().locate(ref, world.work, world.env) for ref in ("loop-1", "loop", str(file))]
        assert found == [run.conversation] * 3
        async with running(world, resume=found[0], session_id="unused") as again:
            assert again.conversation == run.conversation
            await again.agent.prompt(stamped("second", 2))
            await again.told.until("settled")
        assert user_texts(server.requests[1]) == ["first", "second"]
        assert "tool" in [message["role"] for message in server.requests[1]["messages"]]

    drive(tmp_path, [Reply(tools=[decision("continue")]), Reply(tools=[decision("complete")])], scenario)


def test_a_conversation_in_which_nothing_was_said_can_be_reopened(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            file = run.conversation.file
            assert file is not None
            assert not file.exists()
        with pytest.raises(NotFoundError):
            create().locate("loop-1", world.work, world.env)
        async with running(world, resume=run.conversation) as again:
            assert again.conversation.id == "loop-1"

    drive(tmp_path, [], scenario)


def test_a_folder_beside_the_session_file_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            assert run.conversation.file is not None
            run.conversation.file.with_suffix(".loopsup").mkdir()
            await run.agent.prompt(stamped("first"))
            await run.told.until("settled")
        assert create().locate("loop-1", world.work, world.env) == run.conversation
        async with running(world, resume=run.conversation) as again:
            assert again.conversation == run.conversation

    drive(tmp_path, [Reply("ok")], scenario)


def test_the_marker_survives_a_restart_and_never_reaches_the_model(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            assert run.started.marker is None
            await run.agent.mark(Marker("loop-a", 1))  # before the file exists
            await run.agent.prompt(stamped("first"))
            await run.told.until("settled")
            await run.agent.mark(Marker("loop-a", 4))
        async with running(world, resume=run.conversation) as again:
            assert (again.started.marker, again.started.newest) == (Marker("loop-a", 4),) * 2
            await again.agent.prompt(stamped("second", 2))
            await again.told.until("settled")
        assert "loop-a" not in json.dumps(server.requests)
        assert run.conversation.file is not None
        lines = [json.loads(line) for line in run.conversation.file.read_bytes().split(b"\n") if line]
        marks = [line["data"] for line in lines if line.get("customType") == "loopsup"]
        assert marks == [{"v": 1, "loopId": "loop-a", "seq": 1}, {"v": 1, "loopId": "loop-a", "seq": 4}]

    drive(tmp_path, [Reply("ok")] * 2, scenario)


def test_an_attention_event_is_shown_in_pi_and_kept_from_the_model(tmp_path: Path) -> None:
    """L-125."""
    event = {"version": 1, "status": "blocked", "summary": "needs a key-77"}

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        async with running(world) as run:
            await run.agent.prompt(stamped("first"))
            await run.told.until("settled")
            await run.agent.announce(event)
            await run.agent.prompt(stamped("second", 2))
            await run.told.until("settled", 2)
        assert run.conversation.file is not None
        lines = [json.loads(line) for line in run.conversation.file.read_bytes().split(b"\n") if line]
        assert [line["data"] for line in lines if line.get("customType") == "loopsup-attention"] == [event]
        assert "key-77" not in json.dumps(server.requests)
        assert run.told.all("ask") == []

    drive(tmp_path, [Reply("ok")] * 2, scenario)


TREE = """pi.registerCommand("back", { handler: async (_: any, ctx: any) => {
  const user = ctx.sessionManager.getBranch().filter((e: any) => e.type === "message" && e.message.role === "user");
  await ctx.navigateTree(user[1].id, { summarize: false }); } });
pi.registerCommand("copy", { handler: async (_: any, ctx: any) => {
  const user = ctx.sessionManager.getBranch().filter((e: any) => e.type === "message" && e.message.role === "user");
  await ctx.fork(user[1].id); } });"""


def test_a_move_in_the_tree_is_told_before_and_after(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("tree", TREE)
        async with running(world) as run:
            for number in (1, 2):
                await run.agent.prompt(stamped(f"text {number}", number))
                await run.told.until("settled", number)
                await run.agent.mark(Marker("loop-a", number))
            await run.agent.prompt(said("/back"))
            assert await run.told.until("branch") == Marker("loop-a", 1)
        names = [name for name, _ in run.told.calls]
        assert names.index("forking") < names.index("branch")
        assert run.told.all("forking") == ["tree"]
        assert run.told.all("moved") == []

    drive(tmp_path, [Reply("ok")] * 2, scenario)


def test_a_fork_waits_for_the_loop_and_serves_another_conversation(tmp_path: Path) -> None:
    paused: list[str] = []

    class Slow(Recording):
        async def forking(self, what: str) -> None:
            await super().forking(what)
            await asyncio.sleep(0.2)
            paused.append(f"moved: {self.all('moved')}")

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("tree", TREE)
        async with running(world, Slow()) as run:
            for number in (1, 2):
                await run.agent.prompt(stamped(f"text {number}", number))
                await run.told.until("settled", number)
            await run.agent.prompt(said("/copy"))
            moved = await run.told.until("moved")
            assert paused == ["moved: []"]
            assert moved.id != run.conversation.id
            assert moved.file != run.conversation.file
            assert moved.cwd == world.work
            # The new conversation is served by the same extension.
            await run.agent.prompt(stamped("text 3", 3))
            await run.told.until("decide")
            await run.agent.mark(Marker("loop-b", 9))
            assert run.log == [line for line in run.log if "marker" not in line]

    drive(tmp_path, [Reply("ok"), Reply("ok"), Reply(tools=[decision("complete")])], scenario)


ASKING = """pi.on("tool_call", async (event: any, ctx: any) => {
  if (event.toolName !== "bash") return;
  const sure = await ctx.ui.confirm("Run it?", event.input.command);
  const name = await ctx.ui.select("Which?", ["one", "two"]);
  pi.appendEntry("answers", { sure, name });
  if (!sure) return { block: true, reason: "nobody said yes" }; });"""


@pytest.mark.parametrize("allow", [True, False])
def test_a_dialog_of_the_users_extension_is_a_question(tmp_path: Path, allow: bool) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("asking", ASKING)
        async with running(world) as run:
            await run.agent.prompt(stamped())
            first = await run.told.until("ask")
            assert first == Question(first.id, "dialog", "confirm", "Run it? touch made.txt")
            await run.agent.answer(first.id, allow, "nobody answered")
            second = await run.told.until("ask", 2)
            assert second == Question(second.id, "dialog", "select", "Which? [one | two] (allow picks 'one')")
            await run.agent.answer(second.id, allow, "")
            await run.agent.answer(second.id, allow, "again")  # too late: nothing
            await run.told.until("settled")
        assert (world.work / "made.txt").exists() is allow
        assert run.conversation.file is not None
        (answers,) = [
            json.loads(line)["data"]
            for line in run.conversation.file.read_bytes().split(b"\n")
            if b'"answers"' in line
        ]
        assert answers == ({"sure": True, "name": "one"} if allow else {"sure": False})

    drive(tmp_path, [Reply(tools=[bash("touch made.txt")]), Reply(tools=[decision("block")])], scenario)


def test_an_abort_closes_the_dialogs_first(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension("asking", ASKING)
        async with running(world) as run:
            await run.agent.prompt(stamped())
            question = await run.told.until("ask")
            await run.agent.abort(AbortReason.USER)
            second = await run.told.until("ask", 2)  # the extension asks on, not knowing of the abort
            await run.agent.answer(second.id, False, "")
            assert await run.told.until("settled") is True
        assert run.told.all("ask_over") == [(question.id, "cancelled")]
        assert not (world.work / "made.txt").exists()

    drive(tmp_path, [Reply(tools=[bash("touch made.txt")])], scenario)


def test_a_dialog_that_times_out_in_pi_is_over(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension(
            "asking",
            """pi.on("agent_start", async (_: any, ctx: any) => {
            await ctx.ui.input("Name?", "", { timeout: 50 }); });""",
        )
        async with running(world) as run:
            await run.agent.prompt(stamped())
            question = await run.told.until("ask")
            assert await run.told.until("ask_over") == (question.id, "timed out in pi")
            await run.told.until("settled")

    drive(tmp_path, [Reply("ok")], scenario)


def test_notices_of_extensions_are_no_questions(tmp_path: Path) -> None:
    async def scenario(world: PiWorld, server: ModelServer) -> None:
        world.extension(
            "noisy",
            """pi.on("agent_start", async (_: any, ctx: any) => {
            ctx.ui.notify("hi"); ctx.ui.setStatus("x", "request"); });""",
        )
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        assert run.told.all("ask") == []
        assert len(run.told.events("assistant.turn_start")) == 1

    drive(tmp_path, [Reply("ok")], scenario)


def test_the_users_normal_configuration_is_used_and_left_alone(tmp_path: Path) -> None:
    """Without PI_CODING_AGENT_DIR: ~/.pi/agent."""

    async def scenario(world: PiWorld, server: ModelServer) -> None:
        normal = tmp_path / "home" / ".pi" / "agent"
        normal.parent.mkdir()
        (tmp_path / "agent").rename(normal)
        before = {path.name: path.read_bytes() for path in normal.glob("*.json")}
        del world.env["PI_CODING_AGENT_DIR"]
        async with running(world) as run:
            await run.agent.prompt(stamped())
            await run.told.until("settled")
        after = {path.name: path.read_bytes() for path in normal.glob("*.json")}
        assert {name: after[name] for name in before} == before
        assert create().locate("loop-1", world.work, world.env) == run.conversation

    drive(tmp_path, [Reply("ok")], scenario)
