"""A scripted ACP agent, as a real child process (standard library only): every fault of T5 and T7 on demand.

    python acp_agent.py SCRIPT STATE        SCRIPT: a JSON file, STATE: a directory for its conversations

The script is an object: `start` (how it comes up) and `prompts` (a list; prompt n of the conversation gets the nth,
later ones the last). Keys of `start`, all optional:

    exit, stderr        end at once with this status and these words
    silent              a list of methods that are never answered (initialize, session/new, session/load, …)
    errors              {method: {"code", "message", "data"}}: answered with that error
    protocol            the protocol version it speaks (1)
    can                 its agentCapabilities (it can load and resume)
    carrier             "use" (the default), "ignore" (never started), "no-list" (started, tools not listed)
    listing_after_s     wait before it lists the tools
    late_replay         go on with the replay of a load after it was answered
    ignore_cancel       keep on after session/cancel
    noise               a line on stdout that is no protocol

A prompt is a list of steps, done in order; then the answer is given:

    {"say": text} {"think": text} {"cost": total} {"sleep": s} {"noise": text} {"request": method}
    {"tool": title, "kind", "ask": bool, "id"}   a tool call, after a permission where `ask`
    {"decide": arguments, "quiet": bool}         loop_control through the MCP server it was given; the rest of
                                                 the steps is left out once it was accepted (unless `go_on`)
    {"claim": arguments}                         a completed loop_control in the stream that was never executed
    {"run": [argv]}                              a command in its shell: output and status become a tool result
    {"flood": n}                                 n chunks of text
    {"hang": true} {"die": status} {"last": status}     ("last": dies after the answer)
    {"close": true}                              its MCP server is killed
    {"error": {"code", "message", "data"}}       the answer is an error
    {"stop": reason, "usage", "_meta"}           the answer's own fields
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_LINE = 64 * 1024 * 1024
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def send(message: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def over(task: asyncio.Task[None]) -> None:
    """A fault of the script must not look like silence."""
    if not task.cancelled() and (error := task.exception()) is not None:
        sys.stderr.write(f"acp_agent.py: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(70)


class Carrier:
    """The MCP server it was given, and our client of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._id = 0

    @classmethod
    async def start(cls, server: Mapping[str, Any]) -> Carrier:
        env = {item["name"]: item["value"] for item in server["env"]}
        process = await asyncio.create_subprocess_exec(
            server["command"],
            *server["args"],
            env={"PATH": os.environ["PATH"], **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE,
        )
        it = cls(process)
        await it.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        return it

    async def ask(self, method: str, params: Any) -> Any:
        self._id += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        self._process.stdin.write(line.encode() + b"\n")
        return json.loads(await self._process.stdout.readline())["result"]

    def kill(self) -> None:
        self._process.kill()


class Agent:
    def __init__(self, script: Path, state: Path) -> None:
        self._script = script
        self._state = state
        self._session = ""
        self._carrier: Carrier | None = None
        self._turn: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._calls = 0
        self._last: int | None = None

    # ---- what it keeps ----------------------------------------------------------------------------

    @property
    def start(self) -> dict[str, Any]:
        return dict(json.loads(self._script.read_text()).get("start", {}))

    def file(self, session: str) -> Path:
        return self._state / f"{session}.jsonl"

    def keep(self, kind: str, **fields: Any) -> None:
        with self.file(self._session).open("a") as out:
            out.write(json.dumps({"kind": kind, **fields}) + "\n")

    def kept(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file(session).read_text().splitlines()]

    # ---- the protocol -----------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader) -> None:
        tasks = set()
        while line := await reader.readline():
            message = json.loads(line)
            if "method" not in message:
                waiting = self._waiting.pop(message["id"], None)
                if waiting is not None:
                    waiting.set_result(message)
                continue
            task = asyncio.create_task(self.hear(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(over)

    async def hear(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        start = self.start
        if method == "session/cancel":
            if self._turn is not None and not start.get("ignore_cancel"):
                self._turn.cancel()
            return
        if method in start.get("silent", ()):
            return
        if method in start.get("errors", {}):
            send({"id": message["id"], "error": start["errors"][method]})
            return
        if method == "session/prompt":
            await self.prompt(message["id"], params)
            return
        send({"id": message["id"], "result": await self.open(method, params)})
        if method == "session/load" and start.get("late_replay"):
            self.replay()

    async def open(self, method: str, params: Mapping[str, Any]) -> Any:
        start = self.start
        match method:
            case "initialize":
                return {
                    "protocolVersion": start.get("protocol", 1),
                    "agentCapabilities": start.get("can", CAN),
                    "authMethods": [],
                }
            case "session/new":
                self._session = str(uuid.uuid4())
                self.file(self._session).touch()
            case _:
                self._session = params["sessionId"]
                if not self.file(self._session).exists():
                    raise LookupError(self._session)
        self.keep("open", method=method, meta=params.get("_meta"), servers=[s["name"] for s in params["mcpServers"]])
        if method == "session/load":
            self.replay()
        await self.connect(params["mcpServers"], start)
        return {"sessionId": self._session} if method == "session/new" else {}

    async def connect(self, servers: list[Mapping[str, Any]], start: Mapping[str, Any]) -> None:
        if not servers or start.get("carrier") == "ignore":
            return
        self._carrier = await Carrier.start(servers[0])
        if start.get("carrier") != "no-list":
            await asyncio.sleep(start.get("listing_after_s", 0))
            await self._carrier.ask("tools/list", {})

    def update(self, what: str, **fields: Any) -> None:
        send(
            {
                "method": "session/update",
                "params": {"sessionId": self._session, "update": {"sessionUpdate": what, **fields}},
            }
        )

    def replay(self) -> None:
        """As the real ones do it: like new."""
        for item in self.kept(self._session):
            match item["kind"]:
                case "user":
                    self.update("user_message_chunk", content={"type": "text", "text": item["text"]})
                case "assistant":
                    self.update("agent_message_chunk", content={"type": "text", "text": item["text"]})
                case "tool":
                    call = {"toolCallId": item["id"], "title": item["title"], "rawInput": item["arguments"]}
                    self.update("tool_call", **call, status="completed")

    # ---- prompts ----------------------------------------------------------------------------------

    async def prompt(self, identity: object, params: Mapping[str, Any]) -> None:
        (block,) = params["prompt"]
        self.keep("user", text=block["text"])
        number = sum(item["kind"] == "user" for item in self.kept(self._session))
        prompts = json.loads(self._script.read_text())["prompts"]
        steps = prompts[min(number, len(prompts)) - 1]
        self._turn = asyncio.create_task(self.perform(steps))
        answer: dict[str, Any]
        try:
            answer = await self._turn or {"result": {"stopReason": "end_turn"}}
        except asyncio.CancelledError:
            answer = {"result": {"stopReason": "cancelled"}}
        self._turn = None
        send({"id": identity, **answer})
        if self._last is not None:
            os._exit(self._last)

    async def perform(self, steps: list[dict[str, Any]]) -> Any:
        answer = None
        for step in steps:
            (what, value), *_ = step.items()
            match what:
                case "say":
                    self.keep("assistant", text=value)
                    self.update("agent_message_chunk", content={"type": "text", "text": value})
                case "think":
                    self.update("agent_thought_chunk", content={"type": "text", "text": value})
                case "cost":
                    self.update("usage_update", used=1, size=2, cost={"amount": value, "currency": "USD"})
                case "sleep":
                    await asyncio.sleep(value)
                case "noise":
                    sys.stdout.write(f"{value}\n")
                    sys.stdout.flush()
                case "request":
                    self.keep("answer", answer=await self.request(value, {"sessionId": self._session}))
                case "flood":
                    for number in range(value):
                        self.update("agent_message_chunk", content={"type": "text", "text": f"{number} " + "x" * 90})
                case "hang":
                    await asyncio.Event().wait()
                case "die":
                    os._exit(value)
                case "last":
                    self._last = value
                case "close":
                    assert self._carrier is not None
                    self._carrier.kill()
                case "error":
                    return {"error": value}
                case "stop":
                    extra = {key: step[key] for key in ("usage", "_meta") if key in step}
                    answer = {"result": {"stopReason": value, **extra}}
                case "tool":
                    await self.tool(step)
                case "run":
                    await self.run(value)
                case "claim":
                    self.call(self.next_call(), "loopsup_loop_control", value, "completed")
                case "decide":
                    if await self.decide(value, quiet=step.get("quiet", False)) and not step.get("go_on"):
                        break
                case _:
                    raise ValueError(what)
        return answer

    async def request(self, method: str, params: Any) -> Any:
        identity = f"r{uuid.uuid4()}"
        answer = self._waiting[identity] = asyncio.get_running_loop().create_future()
        send({"id": identity, "method": method, "params": params})
        found = dict(await answer)
        return found.get("result", found.get("error"))

    def next_call(self) -> str:
        self._calls += 1
        return f"call-{os.getpid()}-{self._calls}"

    def call(self, identity: str, title: str, arguments: Any, status: str, text: str = "", **more: Any) -> None:
        """The way opencode does it: announced without arguments, then with them, then done."""
        kind = more.get("kind", "other")
        self.update("tool_call", toolCallId=identity, title=title, kind=kind, status="pending", rawInput={})
        self.update("tool_call_update", toolCallId=identity, status="in_progress", rawInput=arguments)
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        self.update("tool_call_update", toolCallId=identity, status=status, content=content)
        self.keep("tool", id=identity, title=title, arguments=arguments, text=text, status=status)

    async def tool(self, step: Mapping[str, Any]) -> None:
        identity, kind = step.get("id") or self.next_call(), step.get("kind", "execute")
        status, arguments = "completed", {"command": step["tool"]}
        if step.get("ask"):
            call = {"toolCallId": identity, "title": step["tool"], "kind": kind, "rawInput": arguments}
            asked = {"sessionId": self._session, "toolCall": call, "options": step.get("options", OPTIONS)}
            answer = await self.request("session/request_permission", asked)
            self.keep("permission", answer=answer)
            if answer["outcome"].get("optionId") not in ("once", "always"):
                status = "failed"
        self.call(
            identity, step["tool"], arguments, status, "ran it" if status == "completed" else "denied", kind=kind
        )

    async def run(self, argv: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        text = f"[{process.returncode}] {out.decode()}"
        self.call(self.next_call(), argv[0], {"argv": argv}, "completed", text, kind="execute")

    async def decide(self, arguments: Any, *, quiet: bool) -> bool:
        assert self._carrier is not None
        result = await self._carrier.ask("tools/call", {"name": "loop_control", "arguments": arguments})
        text, failed = result["content"][0]["text"], result["isError"]
        if not quiet:
            self.call(self.next_call(), "loopsup_loop_control", arguments, "failed" if failed else "completed", text)
        return not failed


async def main() -> int:
    script, state = Path(sys.argv[1]), Path(sys.argv[2])
    agent = Agent(script, state)
    start = agent.start
    if "exit" in start:
        sys.stderr.write(start.get("stderr", "") + "\n")
        return int(start["exit"])
    if "noise" in start:
        sys.stdout.write(start["noise"] + "\n")
        sys.stdout.flush()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await agent.serve(reader)
    return 0


if __name__ == "__main__":
    os._exit(asyncio.run(main()))
