"""The demo adapter's harness for the conformance suite: an example of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from loopsup.ports import Adapter, Conversation, Launch, Permissions
from loopsup.testing.harness import Decide, Hang, Scenario, Talk, UseTool
from loopsup_demo import create


class DemoHarness:
    """Scripts the demo agent through its `--script`; what it heard stands in its conversation file."""

    def __init__(self, tmp: Path, *args: str) -> None:
        self.adapter: Adapter = create()
        self._args = args
        self._tmp = tmp
        self._state = tmp / "state"
        self._state.mkdir(mode=0o700)

    def launch(self, resume: Conversation | None = None) -> Launch:
        return Launch(
            session_id="00000000-0000-4000-8000-00000000000a",
            resume=resume,
            cwd=self._tmp,
            command=None,
            args=self._args or ("--script", str(self._tmp / "script.json")),
            env=os.environ,
            state_dir=self._state,
            run_dir=self._state,
            permissions=Permissions(),
            log=lambda line: None,
        )

    def script(self, *scenarios: Scenario) -> None:
        self.raw([behaviour(scenario) for scenario in scenarios])

    def raw(self, script: object) -> None:
        """A script of the demo itself (`loopsup_demo.script`)."""
        (self._tmp / "script.json").write_text(json.dumps(script))

    def heard(self) -> list[str]:
        return self._texts("user")

    def tool_results(self) -> list[str]:
        return self._texts("tool")

    def _texts(self, kind: str) -> list[str]:
        lines = [json.loads(raw) for raw in (self._state / "demo.jsonl").read_bytes().split(b"\n") if raw]
        begins = [at for at, line in enumerate(lines) if line["kind"] == "conversation"]
        return [line["text"] for line in lines[begins[-1] :] if line["kind"] == kind]


def behaviour(scenario: Scenario) -> dict[str, Any]:
    match scenario:
        case Talk(text):
            return {"do": "omit", "text": text}
        case Decide(calls, with_tool):
            tool = [{"tool": "pretend"}] if with_tool else []
            return {"do": "calls", "turns": [[*tool, {"args": dict(call)}] for call in calls]}
        case UseTool():
            return {"do": "omit", "turns": 1}
        case Hang():
            return {"do": "hang"}
