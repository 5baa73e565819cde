"""`--script FILE`, for tests: scripted behaviour instead of looking (standard library only).

FILE is JSON: a list of behaviours, one for each prompt, the last one for all that follow; or an object
`{"start": [...], "prompts": [...]}` with one start behaviour for each process as well. It is read again at
each use; how far it has come is counted in the conversation, so a crash moves on to the next behaviour.

A start behaviour is an object: `{}`, `{"exit": 3, "stderr": "words"}`, `{"wait_for": PATH}`.

A behaviour is an object with `do`, or just that word:

    omit {text}                 a text, no decision (the default text is "Working on it.")
    decide {args, args2}        one turn with one `loop_control` call (or, with `args2`, two of them: `twice`)
    calls {turns}               turns of calls, until one turn has an accepted one; a call: {"args": …} or
                                {"tool": name, "arguments": {…}, "makes": PATH} (an empty file)
    invalid {args}              a call that is refused, then a text
    ask {kind, args}            asks for permission (or `"kind": "dialog"`) and decides from the answer:
                                allowed: `args`; denied: `block` with the answer's text as evidence
    hang | hang_tool            a model request, or a tool, that ends by abort only
    crash {exit | signal}       after acceptance, in the middle of a turn (default: signal 9)
    vanish {exit | signal}      the same before acceptance
    length | empty              a response cut by its limit, or without any text
    error {kind, message}       a turn that ends in an error
    flood {count}               so many deltas, then a text
    late {args}                 settles, then calls `loop_control`
    self_start {text}           settles, then works once more by itself
    refuse {busy, reason}       the prompt is not taken
    look {file | run}           what it would do without a script, with that thing to look at

and for each of them, where given: `turns` N tool turns first; `wait_for` PATH and `slow_ms` before the first
response; `accept_after` PATH before the acceptance; `linger_for` PATH and `linger_ms` between the end of
the last turn and settlement; `again_for` PATH between settlement and what `late` and `self_start` do then.
A PATH is waited for by polling, so that a test can order things without sleeping.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from loopsup_demo import mind
from loopsup_demo.arguments import Options
from loopsup_demo.turns import Call, Result, Run

POLL_S = 0.01  # a test's time is spent here; 100 looks a second cost nothing
COMPLETE = {"decision": "complete", "summary": "all done", "evidence": "scripted"}

Behaviour = Mapping[str, Any]
Act = Callable[[Run, Behaviour], Awaitable[None]]


def at_start(path: Path | None, number: int) -> Behaviour:
    """What the process `number` (from 1) does before it is ready."""
    return _pick(_read(path)[0], number)


def for_prompt(path: Path, number: int) -> Behaviour:
    """What to do with the prompt `number` (from 1)."""
    return _pick(_read(path)[1], number)


async def perform(run: Run, behaviour: Behaviour) -> None:
    """Everything between acceptance and settlement (and, for a few, what comes after it)."""
    run.before_answer = lambda: pause(behaviour.get("wait_for"), behaviour.get("slow_ms"))
    for _ in range(behaviour.get("turns", 0) if behaviour["do"] != "calls" else 0):
        async with run.turn() as turn:
            await turn.use(_tool("pretend"))
    await ACTS[behaviour["do"]](run, behaviour)
    await pause(behaviour.get("linger_for"), behaviour.get("linger_ms"))


async def pause(path: str | None, ms: int | None = None, given_up: Callable[[], bool] = lambda: False) -> None:
    """Wait for the path (or until `given_up`), and that long."""
    while path is not None and not _exists(path) and not given_up():  # noqa: ASYNC110 (no event tells it)
        await asyncio.sleep(POLL_S)
    if ms:
        await asyncio.sleep(ms / 1000)


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (the other one raises where it may not look)


def die(behaviour: Behaviour) -> NoReturn:
    """End at once, without a word."""
    if "exit" in behaviour:
        os._exit(behaviour["exit"])
    os.kill(os.getpid(), behaviour.get("signal", signal.SIGKILL))
    raise SystemExit(1)  # a signal that does not kill


def _read(path: Path | None) -> tuple[list[Any], list[Any]]:
    if path is None:
        return [], []
    script = json.loads(path.read_text(encoding="utf-8"))
    return (script.get("start", []), script.get("prompts", [])) if isinstance(script, dict) else ([], script)


def _pick(behaviours: list[Any], number: int) -> Behaviour:
    chosen: Any = behaviours[min(number, len(behaviours)) - 1] if behaviours else {"do": "omit"}
    return {"do": chosen} if isinstance(chosen, str) else chosen


async def _omit(run: Run, behaviour: Behaviour) -> None:
    await mind.talk(run, behaviour.get("text", "Working on it."))


async def _calls(run: Run, behaviour: Behaviour) -> None:
    for calls in behaviour["turns"]:
        async with run.turn() as turn:
            made = [_pretend(call) if "tool" in call else mind.control(run, call["args"]) for call in calls]
            results = await turn.use(*made)
        if any(ok and "args" in call for call, (ok, _) in zip(calls, results, strict=True)):
            return
    await mind.talk(run, "I leave it at that.")


async def _decide(run: Run, behaviour: Behaviour) -> None:
    calls = [{"args": behaviour[key]} for key in ("args", "args2") if key in behaviour]
    await _calls(run, {"turns": [calls or [{"args": COMPLETE}]]})


async def _twice(run: Run, behaviour: Behaviour) -> None:
    first = behaviour.get("args", COMPLETE)
    await _decide(run, {"args": first, "args2": behaviour.get("args2", first)})


async def _invalid(run: Run, behaviour: Behaviour) -> None:
    await _decide(run, {"args": behaviour.get("args", {"decision": "perhaps"})})


async def _ask(run: Run, behaviour: Behaviour) -> None:
    answers: list[tuple[bool, str]] = []
    async with run.turn() as turn:
        await turn.use(Call("shell", {"command": "make deploy"}, lambda: _ask_person(run, behaviour, answers)))
    allowed, text = answers[0]
    denied = {"decision": "block", "summary": "not permitted", "evidence": text or "denied"}
    await mind.decide(run, dict(behaviour.get("args", COMPLETE)) if allowed else denied)


async def _ask_person(run: Run, behaviour: Behaviour, answers: list[tuple[bool, str]]) -> Result:
    question = {"is": "ask", "id": run.next_id("q"), "kind": behaviour.get("kind", "permission")}
    try:
        answer = await run.request(question | {"tool": "shell", "text": "May I run `make deploy`?"})
    except asyncio.CancelledError:
        run.send({"is": "ask_over", "id": question["id"]})
        raise
    answers.append((bool(answer["allow"]), str(answer["text"])))
    return answers[0][0], "deployed" if answers[0][0] else f"denied: {answers[0][1]}"


async def _hang(run: Run, behaviour: Behaviour) -> None:
    async with run.turn():
        await asyncio.Event().wait()


async def _hang_tool(run: Run, behaviour: Behaviour) -> None:
    async with run.turn() as turn:
        await turn.use(Call("sleep", {}, _for_ever))


async def _crash(run: Run, behaviour: Behaviour) -> None:
    async with run.turn() as turn:
        turn.say("I have a bad feeling about this.")
        die(behaviour)


async def _length(run: Run, behaviour: Behaviour) -> None:
    async with run.turn() as turn:
        turn.say(behaviour.get("text", "It all began when"))
        turn.stop = "length"


async def _empty(run: Run, behaviour: Behaviour) -> None:
    async with run.turn():
        pass


async def _error(run: Run, behaviour: Behaviour) -> None:
    error = {"kind": behaviour.get("kind", "provider"), "message": behaviour.get("message", "500: scripted")}
    async with run.turn() as turn:
        turn.stop, turn.end = "error", {"error": error}
    run.event("session.error", error)


async def _flood(run: Run, behaviour: Behaviour) -> None:
    async with run.turn() as turn:
        turn.say("word " * behaviour.get("count", 1000))


async def _late(run: Run, behaviour: Behaviour) -> None:
    await mind.talk(run, "I am done.")
    run.settle()
    await pause(behaviour.get("again_for"))
    run.history.append("tool", tool="loop_control", text=(await run.decide(behaviour.get("args", COMPLETE)))[1])


async def _self_start(run: Run, behaviour: Behaviour) -> None:
    await mind.talk(run, "I am done.")
    run.settle()
    await pause(behaviour.get("again_for"))
    run.begin()
    await mind.talk(run, behaviour.get("text", "One more thing."))


async def _look(run: Run, behaviour: Behaviour) -> None:
    file = Path(behaviour["file"]) if "file" in behaviour else None
    await mind.look_and_decide(run, Options(file=file, run=tuple(behaviour.get("run", ()))))


def _tool(name: str) -> Call:
    return Call(name, {}, _nothing)


def _pretend(call: Mapping[str, Any]) -> Call:
    async def run() -> Result:
        if "makes" in call:
            Path(call["makes"]).touch()  # noqa: ASYNC240 (it takes no time)
        return True, "done"

    return Call(call["tool"], call.get("arguments", {}), run)


async def _nothing() -> Result:
    return True, "done"


async def _for_ever() -> Result:
    await asyncio.Event().wait()
    return True, "never"


ACTS: Mapping[str, Act] = {
    "omit": _omit,
    "decide": _decide,
    "twice": _twice,
    "calls": _calls,
    "invalid": _invalid,
    "ask": _ask,
    "hang": _hang,
    "hang_tool": _hang_tool,
    "crash": _crash,
    "length": _length,
    "empty": _empty,
    "error": _error,
    "flood": _flood,
    "late": _late,
    "self_start": _self_start,
    "look": _look,
}
