"""What the demo agent does with a prompt: look and decide, or answer a person (standard library only)."""

from __future__ import annotations

import re
import shlex
from typing import Any

from loopsup_demo import looking
from loopsup_demo.arguments import Options
from loopsup_demo.history import History
from loopsup_demo.turns import LOOP_CONTROL, Call, Result, Run

# The last match counts: the objective stands before this line and may contain anything.
_RHYTHM = re.compile(
    r"^\s*(?:Rhythm|Ritmo): (?:auto \((?:range|faixa) ([0-9dhms]+)\.\.[0-9dhms]+\)|\S+)", re.MULTILINE
)


def auto_delay(envelopes: list[str]) -> str | None:
    """The least delay of the newest envelope's auto rhythm; None in a fixed one. A reminder has no such line."""
    for text in reversed(envelopes):
        if found := list(_RHYTHM.finditer(text)):
            return found[-1].group(1)
    return None


async def look_and_decide(run: Run, options: Options) -> None:
    """Tool turns, then a turn with the decision; a refused one is told and left at that."""
    for _ in range(options.turns - 1):
        async with run.turn() as turn:
            turn.say("What do I know already?")
            await turn.use(Call("recall", {}, lambda: _recall(run.history)))
    seen: list[looking.Finding] = []
    async with run.turn() as turn:
        turn.say(f"I look at {shown(options)}.")
        await turn.use(Call("look", _what(options), lambda: _look(options, seen)))
    await decide(run, arguments(seen[0], auto_delay(run.history.texts("user"))))


def arguments(seen: looking.Finding, delay: str | None) -> dict[str, str]:
    """The `loop_control` call that follows from what was seen."""
    call = {"decision": seen.verb, "summary": seen.summary, "evidence": seen.evidence}
    return call | {"nextDelay": delay} if seen.verb == "continue" and delay is not None else call


async def decide(run: Run, call: dict[str, Any]) -> None:
    """One turn with the call. Refused: one more that says so."""
    async with run.turn() as turn:
        turn.say(f"{call.get('summary', 'I decide')}.")
        [(accepted, message)] = await turn.use(control(run, call))
    if not accepted:
        await talk(run, f"My decision was refused: {message}")


async def talk(run: Run, text: str) -> None:
    """One turn of plain text."""
    async with run.turn() as turn:
        turn.say(text)


async def answer_person(run: Run, options: Options) -> None:
    """A message that is not the loop's gets a short account of the conversation so far."""
    heard = run.history.texts("user")
    saw = [line["text"] for line in run.history.conversation() if line.get("tool") == "look"]
    seen = f"I have looked {len(saw)}×; the last time: {saw[-1]}" if saw else "I have not looked at anything yet."
    what = "" if options.script else f"When a loop wakes me I look at {shown(options)}. "
    await talk(run, f"I am the demo agent and have no model. {what}This is message {len(heard)} to me. {seen}")


def control(run: Run, call: object) -> Call:
    """A `loop_control` call, for `Turn.use`."""
    return Call(LOOP_CONTROL, call, lambda: run.decide(call))


def shown(options: Options) -> str:
    """What it looks at, in words."""
    return str(options.file) if options.file is not None else f"`{looking.cited(shlex.join(options.run))}`"


def _what(options: Options) -> dict[str, Any]:
    return {"file": str(options.file)} if options.file is not None else {"command": list(options.run)}


async def _look(options: Options, seen: list[looking.Finding]) -> Result:
    finding = looking.at_file(options.file) if options.file else await looking.at_command(options.run)
    seen.append(finding)
    return True, finding.evidence


async def _recall(history: History) -> Result:
    return True, f"{len(history.texts('user'))} messages, {len(history.texts('tool'))} tool results"
