"""Loops of the scripted ACP agent in a world of real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.acp_harness import AGENT
from tests.support.world import SLOW, World

Steps = list[dict[str, Any]]


def decide(verb: str, summary: str = "looked", evidence: str = "ran make test", **more: str) -> dict[str, Any]:
    """A step: this decision, through the carrier."""
    return {"decide": {"decision": verb, "summary": summary, "evidence": evidence, **more}}


def agent_args(world: World, prompts: list[Steps], start: dict[str, Any] | None = None) -> tuple[str, ...]:
    """The command line of the agent; the script may be written anew at any time."""
    path = world.script({"start": start or {}, "prompts": prompts})
    state = world.root / "acp"
    state.mkdir(exist_ok=True)
    return (*AGENT, str(path), str(state))


def begin(world: World, prompts: list[Steps], *options: str, start: dict[str, Any] | None = None, **how: Any) -> Any:
    """A detached loop, hourly unless the options say otherwise; its status."""
    rhythm = () if "--every" in options else SLOW
    words = ("--agent", "acp", "--detach", *rhythm, *options, "obj", "--", *agent_args(world, prompts, start))
    return world.json("start", *words, **how)


def kept(world: World, kind: str) -> list[dict[str, Any]]:
    """What the agent wrote down, oldest conversation first."""
    files = sorted((world.root / "acp").glob("*.jsonl"), key=lambda path: path.stat().st_ctime_ns)
    lines = [line for path in files for line in Path(path).read_text().splitlines()]
    return [item for item in map(json.loads, lines) if item["kind"] == kind]
