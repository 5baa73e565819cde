"""The agent's own process: JSON lines on standard input and output (standard library only).

It hears

    {"do":"open","id":…,"resume":bool,"history":PATH,"args":[…],"hold":bool}    first; answered by `ready`
    {"do":"prompt","id":…,"text":…,"loop":bool}                       answered by `accepted` or `refused`
    {"do":"verdict","id":…,"accepted":bool,"message":…}               to a `call` or a `check`
    {"do":"answer","id":…,"allow":bool,"text":…}                      to an `ask`
    {"do":"abort"}                                                    nothing, when it is idle

and says `ready`, `accepted` and `refused` (`id`), `event` (`type`, `data`: the vocabulary of loopsup), `doing`
(`what`), `call` (`id`, `arguments`), `check` (a tool, before it runs: `id`, `tool`, `arguments`), `ask` (`id`,
`kind`, `tool`, `text`), `ask_over` (`id`), `busy`, `settled`
(`aborted`). It ends when its input ends, after having ended what it was doing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from loopsup_demo import arguments, mind, script
from loopsup_demo.history import History
from loopsup_demo.turns import Run, Waiting

MAX_LINE = 64 * 1024 * 1024  # an objective of 1 MiB escaped by JSON is 6 MiB; the rest is small


def send(message: Mapping[str, Any]) -> None:
    """One line, at once: the adapter always reads."""
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=True).encode("ascii") + b"\n")
    sys.stdout.buffer.flush()


class Mind:
    """The conversation, the run under way and the tasks of it."""

    def __init__(self, options: arguments.Options, history: History, hold: bool) -> None:
        self._options = options
        self._hold = hold
        self._history = history
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: Waiting = {}
        self._runs = 0

    def hear(self, message: Mapping[str, Any]) -> None:
        """One message of the adapter after `open`."""
        match message["do"]:
            case "prompt":
                self._keep(self._prompt(message))
            case "abort":
                if self._run is not None and self._run.open and self._task is not None:
                    self._task.cancel()
            case "verdict" | "answer":
                waiting = self._waiting.get(message["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)

    async def end(self) -> None:
        """Stop what is going on, in good order."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(1)  # a fault of the demo itself (or of a script) must not look like silence

    async def _prompt(self, message: Mapping[str, Any]) -> None:
        if self._run is not None and self._run.open:
            send({"is": "refused", "id": message["id"], "busy": True, "reason": "the demo agent is working"})
            return
        self._history.append("step")
        behaviour: Mapping[str, Any] = {}
        if self._options.script is not None:
            behaviour = script.for_prompt(self._options.script, self._history.steps)
        await script.pause(behaviour.get("accept_after"))
        match behaviour.get("do"):
            case "vanish":
                script.die(behaviour)
            case "refuse":
                reason = behaviour.get("reason", "the demo agent does not want to")
                busy = bool(behaviour.get("busy"))
                send({"is": "refused", "id": message["id"], "busy": busy, "reason": reason})
                return
        self._history.append("user", text=message["text"])
        self._runs += 1
        self._run = Run(f"{self._history.starts}.{self._runs}", send, self._history, self._waiting, self._hold)
        send({"is": "accepted", "id": message["id"]})
        self._task = self._keep(self._work(self._run, behaviour, bool(message["loop"])))

    async def _work(self, run: Run, behaviour: Mapping[str, Any], loop: bool) -> None:
        aborted = False
        try:
            if behaviour:
                await script.perform(run, behaviour)
            elif loop:
                await mind.look_and_decide(run, self._options)
            else:
                await mind.answer_person(run, self._options)
        except asyncio.CancelledError:
            aborted = True
        run.settle(aborted=aborted)


async def main() -> int:
    """Open the conversation, then listen until the input ends."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    first = json.loads(await reader.readline() or b"null")
    if first is None:
        return 0
    options = arguments.parse(first["args"])
    try:
        history = History(Path(first["history"]))
        history.open(first["id"], resume=first["resume"])
    except (OSError, LookupError) as error:
        sys.stderr.write(f"{error.args[0] if isinstance(error, LookupError) else error}\n")
        return 1
    start = script.at_start(options.script, history.starts)
    await script.pause(start.get("wait_for"), given_up=reader.at_eof)
    if "exit" in start:
        sys.stderr.write(f"{start.get('stderr', '')}\n")
        return int(start["exit"])
    send({"is": "ready", "id": first["id"]})
    agent = Mind(options, history, bool(first.get("hold")))
    while line := await reader.readline():
        agent.hear(json.loads(line))
    await agent.end()
    return 0


if __name__ == "__main__":
    try:
        code = asyncio.run(main())
    except BrokenPipeError:  # the adapter is gone
        code = 1
    os._exit(code)  # the pipes may already be closed; nothing is left to flush
