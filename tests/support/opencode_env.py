"""The real OpenCode in a world of its own: a scripted model on loopback, nothing of the machine's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from tests.support import acp_toolchain
from tests.support.model_server import Body, ModelServer, Reply
from tests.support.world import World

TOOL = "loopsup_loop_control"  # what OpenCode makes of our MCP server's tool
Rule = Callable[[Body], Reply | None]


def decision(verb: str, summary: str = "looked", evidence: str = "ran make test", **more: str) -> tuple[str, Any]:
    """A call of the carrier's tool."""
    return (TOOL, {"decision": verb, "summary": summary, "evidence": evidence, **more})


def bash(command: str) -> tuple[str, Any]:
    """A call of OpenCode's shell tool."""
    return ("bash", {"command": command, "description": "a step of the test"})


def hidden_calls(body: Body) -> Reply | None:
    """OpenCode also asks for a title; that is none of the script's business."""
    return None if body.get("tools") else Reply("a title")


def offered(body: Body) -> list[str]:
    """The names of the tools before the model."""
    return sorted(tool["function"]["name"] for tool in body.get("tools", []))


def turns(server: ModelServer) -> list[Body]:
    """The requests of the conversation itself."""
    return [body for body in server.requests if body.get("tools")]


def equip(world: World, server: ModelServer, **settings: Any) -> None:
    """OpenCode on the world's PATH, its configuration pointing to the model."""
    model = {
        "name": "Fake",
        "tool_call": True,
        "limit": {"context": 128000, "output": 4096},
        "cost": {"input": 1, "output": 2},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": server.url, "apiKey": "fake-key"},
        "models": {"fake-1": model},
    }
    config = {
        "model": "fake/fake-1",
        "small_model": "fake/fake-1",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"fake": provider},
        **settings,
    }
    path = world.root / "opencode.json"
    path.write_text(json.dumps(config))
    world.env |= {
        "PATH": os.pathsep.join((str(acp_toolchain.ensure(acp_toolchain.OPENCODE)), world.env["PATH"])),
        "OPENCODE_CONFIG": str(path),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
